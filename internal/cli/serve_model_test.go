// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/tokenizer"
)

// TestEndTokensAreTokens: ids that cannot be drawn neither end a text nor become others by being cut to 32 bits.
func TestEndTokensAreTokens(t *testing.T) {
	tok, err := tokenizer.FromJSON(byteTokenizer(), []byte(`{"eos_token": "A"}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ids   []int64
		vocab int
		want  []int32
		log   string
	}{
		{nil, 256, []int32{'A'}, ""},
		{[]int64{255, 2, 'A', 2, 0}, 256, []int32{0, 2, 'A', 255}, ""},
		{[]int64{256, 2, 1<<32 + 3, -1, 256, math.MaxInt64, math.MinInt64}, 256, []int32{2, 'A'},
			"met: end tokens [-9223372036854775808 -1 256 4294967299 9223372036854775807] are left out: the model has the tokens 0 to 255\n"},
		{[]int64{59, 60}, 60, []int32{59}, "met: end tokens [60 65] are left out: the model has the tokens 0 to 59\n"},
	} {
		var log strings.Builder
		if got := endTokens(&modelconf.Generation{EOS: c.ids}, tok, c.vocab, &log); !slices.Equal(got, c.want) || log.String() != c.log {
			t.Errorf("%v of %d: %v, log %q; want %v, %q", c.ids, c.vocab, got, log.String(), c.want, c.log)
		}
	}
}
