// SPDX-License-Identifier: MIT OR Apache-2.0

package seq

// Image is an image of a prompt: what the vision tower takes, and where its tokens lie. Rows of patches come in blocks of
// Merge×Merge, which make one token each:
//
//	0 1  4 5 …      a grid of 4 columns merged by 2: patches 0…3 are the first token
//	2 3  6 7 …
type Image struct {
	First  int       // its first token in the prompt
	Grid   [3]int32  // frames, rows and columns of patches
	Merge  int32     // divides rows and columns
	Pixels []float32 // [frames*rows*columns, values of a patch]
}

// Patches is the number of patches.
func (m *Image) Patches() int { return int(m.Grid[0]) * int(m.Grid[1]) * int(m.Grid[2]) }

// Tokens is the number of tokens.
func (m *Image) Tokens() int { return m.Patches() / int(m.Merge*m.Merge) }

// Patch gives the row and column of patch i of a frame.
func (m *Image) Patch(i int) (row, col int32) {
	merge := int(m.Merge)
	block, in := i/(merge*merge), i%(merge*merge)
	blocks := int(m.Grid[2]) / merge
	return int32(block/blocks*merge + in/merge), int32(block%blocks*merge + in%merge)
}

// Coords gives the places (time, height, width) of the tokens [first, first+len(dst)) of a sequence whose prompt has these
// images, rising by First. A token of text has one place for all three; an image spreads its tokens over its grid, and text
// goes on behind its longest side.
func Coords(images []*Image, first int, dst [][3]int32) {
	at, place := 0, int32(0) // token at has its place
	for _, m := range images {
		end := m.First + m.Tokens()
		for i := max(first, at); i < min(m.First, first+len(dst)); i++ {
			p := place + int32(i-at)
			dst[i-first] = [3]int32{p, p, p}
		}
		place += int32(m.First - at)
		rows, cols := m.Grid[1]/m.Merge, m.Grid[2]/m.Merge
		for i := max(first, m.First); i < min(end, first+len(dst)); i++ {
			j := int32(i - m.First)
			dst[i-first] = [3]int32{place + j/(rows*cols), place + j/cols%rows, place + j%cols}
		}
		at, place = end, place+max(rows, cols)
	}
	for i := max(first, at); i < first+len(dst); i++ {
		p := place + int32(i-at)
		dst[i-first] = [3]int32{p, p, p}
	}
}
