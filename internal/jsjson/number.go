package jsjson

import (
	"bytes"
	"math"
	"strconv"
)

// AppendNumber appends a double as JSON.stringify writes it (ECMA-262
// Number::toString, PHYSICAL §9.3): the shortest digits that read back as f,
// plain from 1e-6 up to 1e21, -0 as 0, NaN and the infinities as null.
func AppendNumber(dst []byte, f float64) []byte {
	if f == 0 {
		return append(dst, '0')
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, "null"...)
	}
	if a := math.Abs(f); a >= 1e-6 && a < 1e21 {
		return strconv.AppendFloat(dst, f, 'f', -1, 64)
	}
	dst = strconv.AppendFloat(dst, f, 'e', -1, 64)
	// strconv pads the exponent to two digits, JavaScript does not.
	if n := len(dst); dst[n-2] == '0' && (dst[n-3] == '-' || dst[n-3] == '+') {
		dst[n-2] = dst[n-1]
		dst = dst[:n-1]
	}
	return dst
}

// parseNumber reads a literal of the JSON grammar as JSON.parse does. What is
// beyond the doubles becomes an infinity.
func parseNumber(lit []byte) float64 {
	// strconv gives up counting exponents at five digits, but a long mantissa
	// can bring such a number back into range.
	if e := bytes.IndexAny(lit, "eE"); e >= 0 && len(lit)-e > 5 {
		return parseFar(lit)
	}
	f, _ := strconv.ParseFloat(string(lit), 64)
	return f
}

func parseFar(lit []byte) float64 {
	d := decimalOf(lit)
	sign := 1.0
	if d.neg {
		sign = -1
	}
	switch {
	case len(d.digits) == 0 || d.point < -400:
		return math.Copysign(0, sign)
	case d.point > 400:
		return math.Inf(int(sign))
	}
	text := append([]byte("0."), d.digits...)
	text = append(text, 'e')
	text = strconv.AppendInt(text, d.point, 10)
	f, _ := strconv.ParseFloat(string(text), 64)
	return sign * f
}

// A decimal is the exact value 0.digits × 10^point, without leading or
// trailing zero digits; zero has no digits.
type decimal struct {
	neg    bool
	digits []byte
	point  int64
}

func decimalOf(lit []byte) decimal {
	var d decimal
	if lit[0] == '-' {
		d.neg = true
		lit = lit[1:]
	}
	d.digits = make([]byte, 0, len(lit))
	i, dot := 0, false
	for ; i < len(lit); i++ {
		c := lit[i]
		if c == '.' {
			dot = true
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		if c == '0' && len(d.digits) == 0 {
			if dot {
				d.point--
			}
			continue
		}
		if !dot {
			d.point++
		}
		d.digits = append(d.digits, c)
	}
	if i < len(lit) {
		i++
		neg := lit[i] == '-'
		if neg || lit[i] == '+' {
			i++
		}
		var e int64
		for ; i < len(lit); i++ {
			// Saturates far beyond the length of any text.
			if e < 1<<55 {
				e = e*10 + int64(lit[i]-'0')
			}
		}
		if neg {
			e = -e
		}
		d.point += e
	}
	d.digits = bytes.TrimRight(d.digits, "0")
	if len(d.digits) == 0 {
		d.point = 0
	}
	return d
}

// numberFacts says how a literal of the JSON grammar differs from what
// JSON.stringify writes for it.
func numberFacts(lit []byte) Facts {
	f := parseNumber(lit)
	if math.IsInf(f, 0) {
		return NumberOverflow
	}
	var buf [32]byte
	out := AppendNumber(buf[:0], f)
	if bytes.Equal(out, lit) {
		return 0
	}
	var facts Facts
	if f == 0 && math.Signbit(f) {
		facts = NegativeZero
	}
	a, b := decimalOf(lit), decimalOf(out)
	switch {
	case a.point != b.point || !bytes.Equal(a.digits, b.digits):
		return facts | NumberLoss
	case facts == 0:
		return NumberForm
	}
	return facts
}
