// SPDX-License-Identifier: MIT OR Apache-2.0

package vec

import (
	"fmt"
	"math"
)

// Act is an activation.
type Act uint8

const (
	None     Act = iota // x
	Sigmoid             // 1/(1+exp(-x))
	Silu                // x*sigmoid(x)
	GeluTanh            // x*sigmoid(2*sqrt(2/pi)*(x + 0.044715x³)), which is the tanh form
	Softplus            // log(1+exp(x)), in float64
	Relu2               // max(x, 0)²
	Gelu                // x*(1+erf(x/sqrt(2)))/2, in float64

	// Of a pair of gate and up: see GluLimited.
	SiluThenLimit
	SwigluOAI
)

var actNames = [...]string{"none", "sigmoid", "silu", "gelu_tanh", "softplus", "relu2", "gelu", "silu_then_limit", "swiglu_oai"}

// String is the name in plans.
func (a Act) String() string { return actNames[a] }

// vector says whether the vector paths have it.
func (a Act) vector() bool { return a <= GeluTanh }

// ParseAct reads a name that String writes.
func ParseAct(name string) (Act, error) {
	for a, n := range actNames {
		if n == name {
			return Act(a), nil
		}
	}
	return None, fmt.Errorf("unknown activation %q", name)
}

// Glu computes dst = act(g)*u; Gate of u by g is the same with dst = u.
func (l Level) Glu(a Act, dst, g, u []float32) {
	if l != Go && a.vector() {
		l.glu(a, dst, g, u)
		return
	}
	gluGo(a, dst, g, u)
}

// Apply computes dst = act(x).
func (l Level) Apply(a Act, dst, x []float32) {
	if l != Go && a.vector() {
		l.apply(a, dst, x)
		return
	}
	applyGo(a, dst, x)
}

// Exp computes dst = exp(x).
func (l Level) Exp(dst, x []float32) {
	if l != Go {
		l.exp(dst, x)
		return
	}
	for i, v := range x {
		dst[i] = exp32(v)
	}
}

func gluGo(a Act, dst, g, u []float32) {
	for i, x := range g {
		dst[i] = act32(a, x) * u[i]
	}
}

func applyGo(a Act, dst, x []float32) {
	for i, v := range x {
		dst[i] = act32(a, v)
	}
}

const (
	gelu1 = -2 * 0.7978845608028654 // -2*sqrt(2/pi)
	gelu3 = gelu1 * 0.044715
)

func act32(a Act, x float32) float32 {
	switch a {
	case Sigmoid:
		return 1 / (1 + exp32(-x))
	case Silu:
		return x / (1 + exp32(-x))
	case GeluTanh:
		return x / (1 + exp32(x*(float32(gelu3*float32(x*x))+gelu1)))
	case Relu2:
		x = max(x, 0)
		return x * x
	case Softplus:
		return float32(math.Max(float64(x), 0) + math.Log1p(math.Exp(-math.Abs(float64(x)))))
	case Gelu:
		return float32(float64(x) * (1 + math.Erf(float64(x)/math.Sqrt2)) / 2)
	}
	return x
}

// Constants of exp: x = n*ln2 + r with ln2 in two parts, exp(r) = 1 + r + r²(c0 + c1 r + … + c4 r⁴), fitted to the
// least relative error over |r| ≤ ln2/2 (3e-9).
const (
	expMin   = -104
	expMax   = 89
	log2e    = 1.4426950408889634
	ln2hi    = 0.693359375
	ln2lo    = -2.1219444005469057e-4
	expC0    = 0x1.fffffcp-2
	expC1    = 0x1.555492p-3
	expC2    = 0x1.5558f2p-5
	expC3    = 0x1.123a20p-7
	expC4    = 0x1.6a23d0p-10
	roundInt = 12582912 // 1.5*2^23: adding and taking it away rounds to an integer
)

func exp32(x float32) float32 {
	if x != x {
		return x
	}
	x = min(max(x, expMin), expMax)
	n := float32(x*log2e) + roundInt - roundInt
	r := x - float32(n*ln2hi) - float32(n*ln2lo)
	p := float32(expC4*r) + expC3
	p = float32(p*r) + expC2
	p = float32(p*r) + expC1
	p = float32(p*r) + expC0
	y := float32(float32(p*r)*r) + r + 1
	// 2^n in two factors: n may lie outside the exponents of normal numbers.
	i := int32(n)
	h := i >> 1
	return y * math.Float32frombits(uint32(h+127)<<23) * math.Float32frombits(uint32(i-h+127)<<23)
}
