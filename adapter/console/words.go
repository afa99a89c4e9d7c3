package console

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"time"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

const clock = "2 Jan 2006 15:04 UTC"

// words are the functions that templates have, for a console that is mounted below a path.
func words(now func() time.Time, base string) template.FuncMap {
	link := func(path string) string { return base + path }
	return template.FuncMap{
		"link":     link,
		"num":      num[int64],
		"count":    num[int],
		"money":    money,
		"when":     func(t time.Time) string { return t.UTC().Format(clock) },
		"iso":      func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
		"ago":      func(t time.Time) string { return ago(now().Sub(t)) },
		"age":      func(t time.Time) string { return span(now().Sub(t)) },
		"since":    func(from, to time.Time) string { return span(to.Sub(from)) },
		"percent":  func(part float64) string { return strconv.FormatFloat(part*100, 'f', 1, 64) + " %" },
		"decimal":  decimal,
		"days":     days,
		"tone":     tone,
		"coverBar": func(d *float64) int { return coverBar(d) },
		"stock":    stockBar,
		"held":     heldBars,
		"get":      func(c inventory.Counts, state string) int64 { return c[inventory.State(state)] },
		"order":    func(id string) string { return link(orderPath(id)) },
		"pool":     func(sku string) string { return link(poolPath(sku)) },
		"batch":    func(sku string, id int64) string { return link(batchPath(sku, id)) },
		"payment":  paymentWords,
		"unit":     unitWords,
		"tally":    tallyWords,
		"act":      actWords,
		"finding":  findingTitle,
		"plainly":  plainly,
	}
}

// num writes a number with its thousands apart.
func num[T int | int64](n T) string {
	text := strconv.FormatInt(int64(n), 10)
	sign := ""
	if n < 0 {
		sign, text = "−", text[1:]
	}
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "\u202f" + text[at:]
	}
	return sign + text
}

// decimals are those currencies whose minor unit is not a hundredth, as Stripe's API counts them
// (https://docs.stripe.com/currencies).
var decimals = map[string]int{"bif": 0, "clp": 0, "djf": 0, "gnf": 0, "jpy": 0, "kmf": 0, "krw": 0, "mga": 0, "pyg": 0, "rwf": 0,
	"vnd": 0, "vuv": 0, "xaf": 0, "xof": 0, "xpf": 0, "bhd": 3, "jod": 3, "kwd": 3, "omr": 3, "tnd": 3}

// money writes an amount in minor units.
func money(minor int64, currency string) string {
	places, special := decimals[strings.ToLower(currency)]
	if !special {
		places = 2
	}
	sign, text := "", strconv.FormatInt(minor, 10)
	if minor < 0 {
		sign, text = "−", text[1:]
	}
	if places > 0 {
		text = strings.Repeat("0", max(0, places+1-len(text))) + text
		text = text[:len(text)-places] + "." + text[len(text)-places:]
	}
	return sign + text + " " + strings.ToUpper(currency)
}

func ago(d time.Duration) string {
	if d < 0 {
		return "in " + span(-d)
	}
	if d < time.Minute {
		return "just now"
	}
	return span(d) + " ago"
}

func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(max(d, 0)/time.Second))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d/time.Minute))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d/time.Hour))
	}
	return fmt.Sprintf("%d days", int(d/(24*time.Hour)))
}

func decimal(n float64) string {
	if n >= 100 {
		return num(int64(n + 0.5))
	}
	return strconv.FormatFloat(n, 'f', 1, 64)
}

// days says how long a pool lasts.
func days(d *float64) string {
	switch {
	case d == nil:
		return "no sales"
	case *d >= 365:
		return "over a year"
	case *d < 10:
		return strconv.FormatFloat(*d, 'f', 1, 64) + " days"
	}
	return strconv.Itoa(int(*d)) + " days"
}

// tone is how a pool stands, as a word that the style sheet knows. It is told by text as well: never by colour alone.
func tone(p fulfillment.PoolOverview) string {
	switch {
	case p.Waiting > 0, p.DaysOfCover != nil && *p.DaysOfCover < 1:
		return "bad"
	case p.DaysOfCover != nil && *p.DaysOfCover < 7:
		return "warn"
	}
	return "good"
}

// coverShown is the number of days that fills the bar of days of cover.
const coverShown = 30

func coverBar(d *float64) int {
	if d == nil {
		return 0
	}
	return int(min(*d, coverShown) * 100 / coverShown)
}

// A bar is a part of a chart, in its own units.
type bar struct {
	X, Y, Width, Height int
	Class, Label        string
	N                   int64
}

// stockBar divides a bar of 1000 units among the states of a pool's keys.
func stockBar(c inventory.Counts) []bar {
	parts := []bar{
		{Class: "available", Label: "available", N: c[inventory.Available]},
		{Class: "reserved", Label: "in carts", N: c[inventory.Reserved]},
		{Class: "allocated", Label: "sold", N: c[inventory.Allocated]},
		{Class: "suspended", Label: "suspended", N: c[inventory.Suspended]},
		{Class: "revoked", Label: "taken back", N: c[inventory.Revoked]},
		{Class: "off", Label: "off the shelf", N: c[inventory.Quarantined] + c[inventory.Expired]},
	}
	var total int64
	for _, p := range parts {
		total += p.N
	}
	var shown []bar
	x := 0
	for _, p := range parts {
		if p.N == 0 {
			continue
		}
		p.X, p.Width = x, max(4, int(float64(p.N)/float64(total)*1000)) // what is there is seen
		x += p.Width
		shown = append(shown, p)
	}
	return shown
}

// heldBars are columns of keys in carts by age, in a chart of 100 units height.
func heldBars(h fulfillment.HeldByAge) []bar {
	bars := []bar{{Label: "< 5 min", N: h.Under5m}, {Label: "5–15 min", N: h.Under15m}, {Label: "15–60 min", N: h.Under1h},
		{Label: "> 1 h", N: h.Over1h, Class: "warn"}}
	most := int64(1)
	for _, b := range bars {
		most = max(most, b.N)
	}
	for i := range bars {
		bars[i].X, bars[i].Width = i*80+12, 56
		bars[i].Height = int(float64(bars[i].N) / float64(most) * 84)
		if bars[i].N > 0 {
			bars[i].Height = max(bars[i].Height, 3)
		}
		bars[i].Y = 100 - bars[i].Height
	}
	return bars
}
