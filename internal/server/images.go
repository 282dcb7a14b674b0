// SPDX-License-Identifier: MIT OR Apache-2.0

package server

import (
	"context"
	"slices"

	"github.com/metrale/metrale/internal/api/openai"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/seq"
	"github.com/metrale/metrale/internal/vision"
)

// Images is how a model takes images.
type Images struct {
	Processor *vision.Processor
	Token     int32         // stands where the template puts an image, and in the prompt for each of its tokens
	Limits    vision.Limits // of a file
	Most      int           // of a request
	Hosts     []string      // that images may be fetched from, with their ports

	fetcher *fetcher
}

// Bounds of the work and the memory that images take.
const (
	maxDecoding = 2       // files that are decoded at a time
	maxPixels   = 1 << 30 // bytes of the pixels of all requests
)

// see gives the prompt with all tokens of its images, and the images. Their memory counts until the exchange ends.
func (x *exchange) see(m *Model, ids []int32, files []openai.Image) ([]int32, []*seq.Image, error) {
	if m.Images == nil {
		return ids, nil, nil
	}
	places := 0
	for _, id := range ids {
		if id == m.Images.Token {
			places++
		}
	}
	if places != len(files) {
		return nil, nil, diag.Errorf(diag.Invalid, "messages: the prompt has places for %d images, of %d", places, len(files)).For("messages")
	}
	if places == 0 {
		return ids, nil, nil
	}
	var images []*seq.Image
	tokens := len(ids) - places
	for i := range files {
		im, err := x.look(m.Images, &files[i])
		if err == nil {
			if tokens += im.Tokens(); tokens > m.Engine.Context() {
				err = diag.Errorf(diag.TooLong, "with it the prompt has at least %d tokens; the context holds %d", tokens, m.Engine.Context())
			}
		}
		if err != nil {
			return nil, nil, diag.Errorf(diag.CodeOf(err), "%s: %w", files[i].Field, err).For(files[i].Field)
		}
		images = append(images, im)
	}
	return expand(ids, m.Images.Token, images, tokens), images, nil
}

// expand puts the tokens of images, in all, where one token stands for each, and notes where they are.
func expand(ids []int32, token int32, images []*seq.Image, all int) []int32 {
	out := make([]int32, 0, all)
	for _, id := range ids {
		if id != token {
			out = append(out, id)
			continue
		}
		im := images[0]
		images = images[1:]
		im.First = len(out)
		out = append(out, slices.Repeat([]int32{token}, im.Tokens())...)
	}
	return out
}

// look makes patches of a file.
func (x *exchange) look(how *Images, file *openai.Image) (*seq.Image, error) {
	ctx, data := x.r.Context(), file.Data
	if file.URL != "" {
		var err error
		if data, err = how.fetcher.get(ctx, file.URL, how.Limits.Bytes); err != nil {
			return nil, err
		}
	}
	select {
	case x.s.decoding <- struct{}{}:
		defer func() { <-x.s.decoding }()
	case <-ctx.Done():
		return nil, gone(context.Cause(ctx))
	}
	picture, err := vision.Decode(data, how.Limits)
	if err != nil {
		return nil, err
	}
	n, err := how.Processor.Bytes(picture.Width, picture.Height)
	if err != nil {
		return nil, err
	}
	x.pixels += n
	if x.s.pixels.Add(n) > maxPixels {
		return nil, diag.Errorf(diag.Overloaded, "the images of all requests take more than %d bytes", int64(maxPixels))
	}
	return how.Processor.Process(picture)
}
