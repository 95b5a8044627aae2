package format

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Strftime implements t.strftime(format) in the C locale, with the GNU flags - _ 0 ^.
func (fm Formatter) Strftime(t time.Time, format string) string {
	fm.Grow(len(format))
	var b strings.Builder
	for {
		at := strings.IndexByte(format, '%')
		if at < 0 || at == len(format)-1 {
			return b.String() + format
		}
		b.WriteString(format[:at])
		format = format[at+1:]
		flag := byte(0)
		if strings.IndexByte("-_0^", format[0]) >= 0 && len(format) > 1 {
			flag, format = format[0], format[1:]
		}
		field := strftimeField(t, format[0])
		if field == "" {
			field = "%" + format[:1]
		}
		switch digits := strings.TrimLeft(field, "0 "); {
		case flag == '^':
			field = strings.ToUpper(field)
		case flag != 0 && flag != '0' && len(field) > 1 && strings.Trim(field, "0123456789 ") == "":
			if digits == "" {
				digits = "0"
			}
			if flag == '_' {
				digits = strings.Repeat(" ", len(field)-len(digits)) + digits
			}
			field = digits
		}
		fm.Grow(len(field))
		b.WriteString(field)
		format = format[1:]
	}
}

// strftimeField returns the text of one conversion, or "" if it is unknown.
func strftimeField(t time.Time, c byte) string {
	layouts := map[byte]string{
		'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'M': "04", 'S': "05", 'B': "January", 'b': "Jan", 'h': "Jan",
		'A': "Monday", 'a': "Mon", 'y': "06", 'p': "PM", 'I': "03", 'j': "002", 'Z': "MST", 'z': "-0700", 'e': "_2",
		'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04", 'D': "01/02/06", 'x': "01/02/06", 'X': "15:04:05",
		'c': "Mon Jan _2 15:04:05 2006", 'r': "03:04:05 PM",
	}
	if layout, ok := layouts[c]; ok {
		return t.Format(layout)
	}
	year, week := t.ISOWeek()
	switch c {
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000)
	case 'k':
		return fmt.Sprintf("%2d", t.Hour())
	case 'l':
		return fmt.Sprintf("%2d", (t.Hour()+11)%12+1)
	case 'P':
		return strings.ToLower(t.Format("PM"))
	case 's':
		return strconv.FormatInt(t.Unix(), 10)
	case 'w':
		return strconv.Itoa(int(t.Weekday()))
	case 'u':
		return strconv.Itoa((int(t.Weekday())+6)%7 + 1)
	case 'V':
		return fmt.Sprintf("%02d", week)
	case 'G':
		return strconv.Itoa(year)
	case 'C':
		return fmt.Sprintf("%02d", t.Year()/100)
	case 'U':
		return fmt.Sprintf("%02d", (t.YearDay()+6-int(t.Weekday()))/7)
	case 'W':
		return fmt.Sprintf("%02d", (t.YearDay()+6-(int(t.Weekday())+6)%7)/7)
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case '%':
		return "%"
	}
	return ""
}
