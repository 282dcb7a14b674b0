// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"fmt"
	"strings"
	"time"
)

// strftime is glibc's strftime in the C locale, which Python's datetime.strftime calls, for a time without a zone.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		start := i
		i++
		flag := byte(0)
		if strings.IndexByte("-_0^#", format[i]) >= 0 && i+1 < len(format) {
			flag = format[i]
			i++
		}
		s, ok := directive(t, format[i], flag)
		if !ok {
			s = format[start : i+1]
		}
		if flag == '^' || flag == '#' {
			s = strings.ToUpper(s)
		}
		b.WriteString(s)
	}
	return b.String()
}

// directive gives the text of one conversion.
func directive(t time.Time, c, flag byte) (string, bool) {
	num := func(n, width int, pad byte) (string, bool) {
		switch flag {
		case '-':
			width = 0
		case '_':
			pad = ' '
		case '0':
			pad = '0'
		}
		if pad == ' ' {
			return fmt.Sprintf("%*d", width, n), true
		}
		return fmt.Sprintf("%0*d", width, n), true
	}
	sub := func(format string) (string, bool) { return strftime(t, format), true }
	hour12 := (t.Hour()+11)%12 + 1
	isoYear, isoWeek := t.ISOWeek()
	weekday := int(t.Weekday())
	switch c {
	case 'a':
		return t.Format("Mon"), true
	case 'A':
		return t.Format("Monday"), true
	case 'b', 'h':
		return t.Format("Jan"), true
	case 'B':
		return t.Format("January"), true
	case 'c':
		return sub("%a %b %e %H:%M:%S %Y")
	case 'C':
		return num(t.Year()/100, 2, '0')
	case 'd':
		return num(t.Day(), 2, '0')
	case 'D', 'x':
		return sub("%m/%d/%y")
	case 'e':
		return num(t.Day(), 2, ' ')
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), true
	case 'F':
		return sub("%Y-%m-%d")
	case 'g':
		return num(isoYear%100, 2, '0')
	case 'G':
		return num(isoYear, 0, '0')
	case 'H':
		return num(t.Hour(), 2, '0')
	case 'I':
		return num(hour12, 2, '0')
	case 'j':
		return num(t.YearDay(), 3, '0')
	case 'k':
		return num(t.Hour(), 2, ' ')
	case 'l':
		return num(hour12, 2, ' ')
	case 'm':
		return num(int(t.Month()), 2, '0')
	case 'M':
		return num(t.Minute(), 2, '0')
	case 'n':
		return "\n", true
	case 'p':
		return t.Format("PM"), true
	case 'P':
		return t.Format("pm"), true
	case 'r':
		return sub("%I:%M:%S %p")
	case 'R':
		return sub("%H:%M")
	case 's':
		return fmt.Sprint(t.Unix()), true
	case 'S':
		return num(t.Second(), 2, '0')
	case 't':
		return "\t", true
	case 'T', 'X':
		return sub("%H:%M:%S")
	case 'u':
		return num((weekday+6)%7+1, 1, '0')
	case 'U':
		return num((t.YearDay()+6-weekday)/7, 2, '0')
	case 'V':
		return num(isoWeek, 2, '0')
	case 'w':
		return num(weekday, 1, '0')
	case 'W':
		return num((t.YearDay()+6-(weekday+6)%7)/7, 2, '0')
	case 'y':
		return num(t.Year()%100, 2, '0')
	case 'Y':
		return num(t.Year(), 0, '0')
	case 'z', 'Z':
		return "", true
	case '%':
		return "%", true
	}
	return "", false
}
