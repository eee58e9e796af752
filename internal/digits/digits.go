// Package digits writes measured numbers for people.
package digits

import "strconv"

// Of writes a number with so many significant digits, at least 1, and never with an
// exponent: 3600 s, and not 3.6e+03 s.
func Of(x float64, digits int) string {
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', digits, 64), 64)
	if err != nil {
		rounded = x // rounded up, it is out of range
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}
