// SPDX-License-Identifier: MIT OR Apache-2.0

package sample

import (
	"math"
	"slices"

	"github.com/metrale/metrale/internal/seq"
)

// worst stands in for the logarithm of zero, which JSON cannot carry.
const worst = -9999

// Logprobs is the natural logarithm of the softmax of a row: of one token, and of the n likeliest, falling, of equal ones
// the lower id first. top is appended to; it stays shorter than n when fewer tokens are possible.
func Logprobs(l []float32, token int32, n int, top []seq.Logprob) (float32, []seq.Logprob, error) {
	from := len(top)
	m, total, top, err := Likeliest(l, n, top)
	if err != nil {
		return 0, top, err
	}
	norm := Norm(m, total)
	for i := range top[from:] {
		top[from+i].Value = Logprob(top[from+i].Value, norm)
	}
	return Logprob(l[token], norm), top, nil
}

// Likeliest gives what log-probabilities are made of: the largest logit, the sum of the masses at temperature 1, and the logits
// of the n likeliest tokens as in Logprobs.
func Likeliest(l []float32, n int, top []seq.Logprob) (m float32, total uint64, _ []seq.Logprob, err error) {
	best, err := argmax(l)
	if err != nil {
		return 0, 0, top, err
	}
	m = l[best]
	for _, v := range l {
		if x := v - m; x >= cutoff {
			total += mass(x)
		}
	}
	return m, total, largest(l, n, top), nil
}

// Norm is the logarithm of the sum of e^l over a row, from its largest logit and the sum of its masses at temperature 1.
func Norm(top float32, total uint64) float64 {
	return float64(top) + math.Log(float64(total)/one)
}

// Logprob is the logarithm of the probability of a token with logit l.
func Logprob(l float32, norm float64) float32 { return max(worst, float32(float64(l)-norm)) }

// largest appends the n largest logits above -Inf in order.
func largest(l []float32, n int, top []seq.Logprob) []seq.Logprob {
	if n <= 0 {
		return top
	}
	from := len(top)
	i := 0
	for ; i < len(l) && len(top)-from < n; i++ {
		if l[i] > negInf {
			top = append(top, seq.Logprob{Token: int32(i), Value: l[i]})
			up(top[from:], len(top)-from-1)
		}
	}
	heap := top[from:] // of the largest so far, the least on top
	for ; i < len(l); i++ {
		if v := l[i]; v > heap[0].Value { // an equal one has a higher id
			heap[0] = seq.Logprob{Token: int32(i), Value: v}
			down(heap)
		}
	}
	slices.SortFunc(heap, func(a, b seq.Logprob) int {
		if less(a, b) {
			return 1
		}
		return -1
	})
	return top
}

// less orders by value, of equal ones the higher id is less.
func less(a, b seq.Logprob) bool {
	return a.Value < b.Value || a.Value == b.Value && a.Token > b.Token
}

func up(h []seq.Logprob, i int) {
	for i > 0 && less(h[i], h[(i-1)/2]) {
		h[i], h[(i-1)/2] = h[(i-1)/2], h[i]
		i = (i - 1) / 2
	}
}

func down(h []seq.Logprob) {
	for i := 0; ; {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && less(h[c+1], h[c]) {
			c++
		}
		if !less(h[c], h[i]) {
			return
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
}
