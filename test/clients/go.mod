// SPDX-License-Identifier: MIT OR Apache-2.0

// The official Go client against a running server. Its own module, so that the engine does not depend on the SDK.
module github.com/metrale/metrale/test/clients

go 1.26
