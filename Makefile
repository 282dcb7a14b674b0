# SPDX-License-Identifier: MIT OR Apache-2.0
# Every target is one line; `make help` lists them.
.PHONY: help build test race vet fuzz goldens kernels bench ci clean

help:    ## list the targets
	@grep -E '^[a-z]+: .*##' Makefile | sed 's/:.*## /\t/' | expand -t 12
build:   ## build ./met
	CGO_ENABLED=0 go build -o met ./cmd/met
test:    ## run the tests
	go test ./...
race:    ## run the tests under the race detector
	CGO_ENABLED=1 go test -race ./...
vet:     ## vet, staticcheck and format
	go vet ./... && go tool staticcheck ./... && test -z "$$(gofmt -l $$(git ls-files '*.go'))"
fuzz:    ## fuzz every target with 50000 inputs
	sh tools/ci/fuzz.sh 50000
goldens: ## rewrite golden files (look at the diff before you commit it)
	grep -rl --include=*_test.go "\"update\"" internal | xargs -n1 dirname | sort -u | sed "s|^|./|" | xargs -I{} go test {} -update
kernels: ## compile the kernels of every class (needs nvcc 13.0 and clang-19)
	go run ./cmd/kbuild
bench:   ## run the Go benchmarks
	go test -run '^$$' -bench . -benchmem ./internal/...
ci:      ## what continuous integration runs
	bash .ci/run
clean:   ## remove build outputs
	rm -rf met build kernels/bin/*/
