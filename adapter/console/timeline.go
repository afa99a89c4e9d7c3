package console

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// A moment is one thing that happened to an order.
type moment struct {
	At     time.Time
	Kind   string // event, key, delivery, person, refund, dispute, finding, order
	Title  string
	Detail string
	By     string
	Bad    bool // somebody should read this one
}

// maxMoments is how many of an order's moments are shown unless all are asked for.
const maxMoments = 150

// timeline is an order's whole history in one list, newest first.
func (v *visit) timeline(o fulfillment.Order, h fulfillment.History) []moment {
	all := []moment{{At: o.PlacedAt, Kind: "order", Title: "Order placed"}}
	if o.PaidAt != nil {
		all = append(all, moment{At: *o.PaidAt, Kind: "order", Title: "Paid"})
	}
	for _, e := range h.Events {
		all = append(all, momentOfEvent(e))
	}
	names := make(map[string]string, len(o.Lines))
	for _, l := range o.Lines {
		names[l.ID] = cmp.Or(l.Name, l.Description, l.ID)
	}
	all = append(all, momentsOfKeys(names, h.Movements)...)
	for _, d := range h.Deliveries {
		all = append(all, v.momentsOfDelivery(d)...)
	}
	for _, r := range h.Refunds {
		all = append(all, moment{At: r.CreatedAt, Kind: "refund", Title: "Refund " + r.ID + " of " + money(r.Amount, o.Currency),
			Detail: joined(r.Status, attributedTo(r.Attribution))})
	}
	for _, d := range h.Disputes {
		all = append(all, moment{At: d.CreatedAt, Kind: "dispute", Title: "Dispute " + d.ID + " of " + money(d.Amount, o.Currency), Detail: d.Status, Bad: true})
	}
	for _, a := range h.Acts {
		all = append(all, moment{At: a.At, Kind: "person", Title: actWords(a.Action), Detail: joined(subjectUnless(a.Subject, o.ID), a.Reason), By: a.Actor})
	}
	for _, f := range h.Findings {
		all = append(all, moment{At: f.OpenedAt, Kind: "finding", Title: "Finding: " + findingTitle(f.Kind), Detail: plainly(f.Detail), Bad: f.ClosedAt == nil})
		if f.ClosedAt != nil {
			all = append(all, moment{At: *f.ClosedAt, Kind: "finding", Title: "Finding closed: " + findingTitle(f.Kind)})
		}
	}
	slices.SortStableFunc(all, func(a, b moment) int { return a.At.Compare(b.At) })
	slices.Reverse(all) // of the same moment, too, what came later stands first
	return all
}

func momentOfEvent(e fulfillment.PastEvent) moment {
	m := moment{At: e.ReceivedAt, Kind: "event", Title: e.Type, Detail: joined(e.ID, e.Note)}
	switch {
	case e.Swept:
		m.By = "found by a sweep"
	case e.State == "pending":
		m.Detail, m.Bad = joined(m.Detail, "not worked yet"), true
	case e.State == "ignored":
		m.Detail = joined(m.Detail, "not about keys")
	}
	return m
}

func (v *visit) momentsOfDelivery(d fulfillment.PastDelivery) []moment {
	what := noticeWords(d.Type) + " by " + channelWords(d.Channel)
	to := v.who.Role.Address(d.Recipient)
	made := moment{At: d.CreatedAt, Kind: "delivery", Title: "Queued: " + what, Detail: to}
	if d.DoneAt == nil {
		made.Detail = joined(to, tries(d.Attempts), d.LastError)
		if d.SendAfter.After(d.CreatedAt.Add(time.Minute)) {
			made.Detail = joined(made.Detail, "held until "+d.SendAfter.UTC().Format(clock))
		}
		made.Bad = d.LastError != ""
		return []moment{made}
	}
	done := moment{At: *d.DoneAt, Kind: "delivery", Detail: joined(to, tries(d.Attempts), d.Answer)}
	switch d.State {
	case fulfillment.DeliverySent:
		done.Title = "Sent: " + what
	case fulfillment.DeliveryFailed:
		done.Title, done.Bad, done.Detail = "Given up: "+what, true, joined(done.Detail, d.LastError)
	default:
		done.Title = strings.ToUpper(string(d.State[:1])) + string(d.State[1:]) + ": " + what
	}
	return []moment{made, done}
}

func tries(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return "1 try"
	}
	return fmt.Sprintf("%d tries", n)
}

// momentsOfKeys tells what happened to several keys of a line at once as one thing.
func momentsOfKeys(names map[string]string, moved []fulfillment.PastMovement) []moment {
	type sort struct {
		at                  time.Time
		from, to            inventory.State
		line, reason, actor string
	}
	var order []sort
	together := make(map[sort][]fulfillment.PastMovement)
	for _, m := range moved {
		s := sort{m.At, m.From, m.To, m.Line, m.Reason, m.Actor}
		if together[s] == nil {
			order = append(order, s)
		}
		together[s] = append(together[s], m)
	}
	all := make([]moment, len(order))
	for i, s := range order {
		same := together[s]
		title := fmt.Sprintf("Key #%d %s", same[0].KeyID, movementWords(s.from, s.to))
		if len(same) > 1 {
			title = fmt.Sprintf("%d keys %s", len(same), plural.Replace(movementWords(s.from, s.to)))
		}
		all[i] = moment{At: s.at, Kind: "key", Title: title, Detail: joined(unitsOf(names, same), s.reason), By: s.actor}
	}
	return all
}

var plural = strings.NewReplacer("was ", "were ", "is ", "are ")

// unitsOf names the units of a line that keys moved for, as ranges.
func unitsOf(names map[string]string, moved []fulfillment.PastMovement) string {
	var units []int
	for _, m := range moved {
		if m.Unit > 0 {
			units = append(units, m.Unit)
		}
	}
	if len(units) == 0 {
		return ""
	}
	slices.Sort(units)
	units = slices.Compact(units)
	var ranges []string
	for i := 0; i < len(units); {
		end := i
		for end+1 < len(units) && units[end+1] == units[end]+1 {
			end++
		}
		if ranges = append(ranges, strconv.Itoa(units[i])); end > i {
			ranges[len(ranges)-1] += "–" + strconv.Itoa(units[end])
		}
		i = end + 1
	}
	word := "unit "
	if len(units) > 1 {
		word = "units "
	}
	return cmp.Or(names[moved[0].Line], moved[0].Line) + ", " + word + strings.Join(ranges, ", ")
}

func movementWords(from, to inventory.State) string {
	switch {
	case to == inventory.Allocated && from == inventory.Suspended:
		return "is valid again"
	case to == inventory.Allocated && from == inventory.Revoked:
		return "was given back"
	case to == inventory.Allocated:
		return "was given to the buyer"
	case to == inventory.Suspended:
		return "was suspended"
	case to == inventory.Revoked:
		return "was taken back"
	case to == inventory.Reserved:
		return "was reserved"
	case to == inventory.Available:
		return "went back on the shelf"
	}
	return "became " + string(to)
}

func attributedTo(lines string) string {
	switch lines {
	case "":
		return ""
	case "none":
		return "for no key"
	}
	return "for " + lines
}

func subjectUnless(subject, known string) string {
	if subject == known {
		return ""
	}
	return subject
}

// joined puts together what there is.
func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), " · ")
}
