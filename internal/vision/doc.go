// SPDX-License-Identifier: MIT OR Apache-2.0

// Package vision makes of an image file what a vision tower takes: decoded, resized, normalised and cut into patches exactly as
// the reference's image processor does it (transformers' Qwen2VLImageProcessorPil, which resizes by Pillow).
//
//	bytes ─► Decode ─► RGB ─► Processor.Process ─► seq.Image
//	         limits           size, Resize, normalise, patches in blocks
//
// Contract:
//
//  1. Decode reads PNG, JPEG, GIF (its first picture), WebP and BMP, told by their first bytes. Limits on bytes and pixels are
//     checked before anything is decoded; a picture past them, broken or of another kind is an error of the client's (diag.Invalid,
//     TooLong, Unsupported). Pictures are turned as EXIF says; what is transparent lies on white.
//  2. Resize gives the bytes that Pillow's bicubic resize gives, and Process the reference's float32 values, bit for bit. (The
//     class that resizes by torchvision differs from that by up to 2 of 255 levels in half a percent of the values.) PNG, GIF, BMP
//     and WebP decode to the reference's bytes; JPEG to within 3 levels, 0.05 on average: inverse cosine transforms round freely.
//  3. A processor's configuration is read strictly: a key that is not known, or a value that would change the arithmetic in a way
//     that is not built, is refused by name.
//
// The package is pure: no file, no network, no goroutine, no clock.
package vision
