// SPDX-License-Identifier: MIT OR Apache-2.0

package text

// Stops are the strings that end a text, made ready to be looked for. They do not change: all texts of a request share them.
type Stops struct {
	words []string
	fail  [][]int32 // fail[i][n]: the longest proper border of words[i][:n]
}

// NewStops prepares words, none of them empty; of no words it is nil.
func NewStops(words []string) *Stops {
	if len(words) == 0 {
		return nil
	}
	s := &Stops{words: words}
	for _, w := range words {
		f := make([]int32, len(w)+1)
		for n, k := 2, int32(0); n <= len(w); n++ {
			for k > 0 && w[k] != w[n-1] {
				k = f[k]
			}
			if w[k] == w[n-1] {
				k++
			}
			f[n] = k
		}
		s.fail = append(s.fail, f)
	}
	return s
}

// matcher finds the first of some strings in a text that comes in pieces. It is one automaton of Knuth, Morris and Pratt
// per string: state[i] is how long a prefix of words[i] the text seen so far ends with.
type matcher struct {
	*Stops
	state []int32
}

// next takes one byte and gives the longest word that ends with it, or -1.
func (m *matcher) next(c byte) int {
	found := -1
	for i, w := range m.words {
		k := m.state[i]
		for k > 0 && (int(k) == len(w) || w[k] != c) {
			k = m.fail[i][k]
		}
		if w[k] == c {
			k++
		}
		m.state[i] = k
		if int(k) == len(w) && (found < 0 || len(w) > len(m.words[found])) {
			found = i
		}
	}
	return found
}

// held is how many bytes at the end of the text may be the beginning of a word.
func (m *matcher) held() int {
	most := int32(0)
	for _, k := range m.state {
		most = max(most, k)
	}
	return int(most)
}
