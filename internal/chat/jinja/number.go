// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"math"
	"math/big"
	"math/bits"
)

// big gives a bool, int or bigInt as a *big.Int that must not be changed.
func (v Value) big() *big.Int {
	if v.kind == kBigInt {
		return v.ref.(*big.Int)
	}
	return big.NewInt(v.int())
}

// toFloat is Python's float(v) of a number.
func (v Value) toFloat() float64 {
	switch v.kind {
	case kFloat:
		return v.float()
	case kBigInt:
		f, _ := new(big.Float).SetInt(v.big()).Float64()
		if math.IsInf(f, 0) {
			fail("OverflowError", "int too large to convert to float")
		}
		return f
	}
	return float64(v.int())
}

// arith computes a op b for two numbers.
func arith(op token, a, b Value) Value {
	if a.kind == kFloat || b.kind == kFloat {
		return floatArith(op, a.toFloat(), b.toFloat())
	}
	if a.kind != kBigInt && b.kind != kBigInt {
		if v, ok := smallArith(op, a.int(), b.int()); ok {
			return v
		}
	}
	return bigArith(op, a.big(), b.big())
}

// smallArith computes on int64; ok is false when the result may not fit.
func smallArith(op token, x, y int64) (v Value, ok bool) {
	switch op {
	case tokAdd:
		z := x + y
		return Int(z), (z > x) == (y > 0)
	case tokSub:
		z := x - y
		return Int(z), (z < x) == (y > 0)
	case tokMul:
		hi, lo := bits.Mul64(magnitude(x), magnitude(y))
		if hi != 0 || lo > math.MaxInt64 {
			return v, false
		}
		return Int(x * y), true
	case tokDiv:
		const exact = 1 << 53
		if y == 0 || magnitude(x) > exact || magnitude(y) > exact {
			return v, false
		}
		return Float(float64(x) / float64(y)), true
	case tokFloorDiv, tokMod:
		if y == 0 || y == -1 {
			return v, false
		}
		q, r := x/y, x%y
		if r != 0 && (r < 0) != (y < 0) {
			q, r = q-1, r+y
		}
		if op == tokMod {
			return Int(r), true
		}
		return Int(q), true
	}
	return v, false
}

func magnitude(x int64) uint64 {
	if x < 0 {
		return uint64(-x)
	}
	return uint64(x)
}

func bigArith(op token, x, y *big.Int) Value {
	z := new(big.Int)
	switch op {
	case tokAdd:
		return bigInt(z.Add(x, y))
	case tokSub:
		return bigInt(z.Sub(x, y))
	case tokMul:
		return bigInt(z.Mul(x, y))
	case tokPow:
		return bigPow(x, y)
	}
	if y.Sign() == 0 {
		switch op {
		case tokDiv:
			fail("ZeroDivisionError", "division by zero")
		case tokMod:
			fail("ZeroDivisionError", "integer modulo by zero")
		}
		fail("ZeroDivisionError", "integer division or modulo by zero")
	}
	if op == tokDiv {
		f, _ := new(big.Rat).SetFrac(x, y).Float64()
		if math.IsInf(f, 0) {
			fail("OverflowError", "integer division result too large for a float")
		}
		return Float(f)
	}
	r := new(big.Int)
	z.QuoRem(x, y, r)
	if r.Sign() != 0 && r.Sign() != y.Sign() {
		z.Sub(z, big.NewInt(1))
		r.Add(r, y)
	}
	if op == tokMod {
		return bigInt(r)
	}
	return bigInt(z)
}

func bigPow(x, y *big.Int) Value {
	if y.Sign() < 0 {
		return floatArith(tokPow, bigInt(x).toFloat(), bigInt(y).toFloat())
	}
	if x.BitLen() > 1 && (!y.IsInt64() || y.Int64() > MaxIntBits || int64(x.BitLen()-1)*y.Int64() > MaxIntBits) {
		fail(limitError, "integer of more than %d bits", MaxIntBits)
	}
	if x.BitLen() <= 1 && y.BitLen() > 1 { // 0, 1 or -1
		y = big.NewInt(2 - int64(y.Bit(0)))
	}
	return bigInt(new(big.Int).Exp(x, y, nil))
}

func floatArith(op token, x, y float64) Value {
	switch op {
	case tokAdd:
		return Float(x + y)
	case tokSub:
		return Float(x - y)
	case tokMul:
		return Float(x * y)
	case tokPow:
		return floatPow(x, y)
	}
	if y == 0 {
		switch op {
		case tokDiv:
			fail("ZeroDivisionError", "float division by zero")
		case tokMod:
			fail("ZeroDivisionError", "float modulo")
		}
		fail("ZeroDivisionError", "float floor division by zero")
	}
	if op == tokDiv {
		return Float(x / y)
	}
	q, r := floatDivMod(x, y)
	if op == tokMod {
		return Float(r)
	}
	return Float(q)
}

// floatDivMod is Python's divmod: the remainder has the sign of y.
func floatDivMod(x, y float64) (q, r float64) {
	r = math.Mod(x, y)
	q = (x - r) / y
	if r != 0 {
		if (y < 0) != (r < 0) {
			r += y
			q--
		}
	} else {
		r = math.Copysign(0, y)
	}
	if q == 0 {
		return math.Copysign(0, x/y), r
	}
	floor := math.Floor(q)
	if q-floor > 0.5 {
		floor++
	}
	return floor, r
}

func floatPow(x, y float64) Value {
	if x == 0 && y < 0 {
		fail("ZeroDivisionError", "0.0 cannot be raised to a negative power")
	}
	if x < 0 && y != math.Trunc(y) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		fail(unsupportedError, "complex numbers")
	}
	z := pow(x, y)
	if math.IsInf(z, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		fail("OverflowError", "(34, 'Numerical result out of range')")
	}
	return Float(z)
}

// pow is x to the power of y. Whole powers are rounded once, as C's pow does in practice; math.Pow rounds at every step.
func pow(x, y float64) float64 {
	if y != math.Trunc(y) || math.Abs(y) > 1<<20 || x == 0 || math.IsInf(x, 0) || x != x {
		return math.Pow(x, y)
	}
	const precision = 300
	square := new(big.Float).SetPrec(precision).SetFloat64(x)
	power := new(big.Float).SetPrec(precision).SetInt64(1)
	for n := int64(math.Abs(y)); n > 0; n >>= 1 {
		if n&1 == 1 {
			power.Mul(power, square)
		}
		if n > 1 {
			square.Mul(square, square)
		}
	}
	if y < 0 {
		power.Quo(big.NewFloat(1).SetPrec(precision), power)
	}
	f, _ := power.Float64()
	return f
}

// negate is Python's -v.
func negate(v Value) Value {
	switch v.kind {
	case kUndefined:
		v.failUndefined()
	case kFloat:
		return Float(-v.float())
	case kBool, kInt, kBigInt:
		if v.kind != kBigInt && v.int() != math.MinInt64 {
			return Int(-v.int())
		}
		return bigInt(new(big.Int).Neg(v.big()))
	}
	failType("bad operand type for unary -: %s", quote(v.typeName()))
	return v
}

// positive is Python's +v.
func positive(v Value) Value {
	switch v.kind {
	case kUndefined:
		v.failUndefined()
	case kBool, kInt:
		return Int(v.int())
	case kFloat, kBigInt:
		return v
	}
	failType("bad operand type for unary +: %s", quote(v.typeName()))
	return v
}

// compareNumbers orders two numbers exactly; unordered is true when one is NaN.
func compareNumbers(a, b Value) (order int, unordered bool) {
	switch {
	case a.kind == kFloat && b.kind == kFloat:
		x, y := a.float(), b.float()
		switch {
		case x < y:
			return -1, false
		case x > y:
			return 1, false
		}
		return 0, x != y
	case a.kind == kFloat:
		order, unordered = compareNumbers(b, a)
		return -order, unordered
	case b.kind == kFloat:
		f := b.float()
		switch {
		case f != f:
			return 0, true
		case math.IsInf(f, 1):
			return -1, false
		case math.IsInf(f, -1):
			return 1, false
		}
		return new(big.Float).SetInt(a.big()).Cmp(new(big.Float).SetFloat64(f)), false
	case a.kind != kBigInt && b.kind != kBigInt:
		x, y := a.int(), b.int()
		switch {
		case x < y:
			return -1, false
		case x > y:
			return 1, false
		}
		return 0, false
	}
	return a.big().Cmp(b.big()), false
}

// index gives v as a Python index; ok is false when v is no integer. Integers beyond int64 are clamped.
func (v Value) index() (n int64, ok bool) {
	switch v.kind {
	case kBool, kInt:
		return v.int(), true
	case kBigInt:
		if v.big().Sign() < 0 {
			return math.MinInt64, true
		}
		return math.MaxInt64, true
	}
	return 0, false
}
