package orderpage

import (
	"time"

	"github.com/keytill/keytill/adapter/letter"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

// view is what the page's template is executed with.
type view struct {
	Words
	Nonce, Shop string
	Problem     problem

	Order    string
	Placed   string
	Products []product
	Ready    int  // keys that a click shows
	Shown    bool // they are shown
	Hidden   int  // keys that are only in the file
}

// A problem is shown in place of an order.
type problem string

const (
	problemLink problem = "link" // it is wrong or has ended
	problemBusy problem = "busy" // try later
)

// product is a line of the order.
type product struct {
	Name                                           string
	Ready, Waiting, Suspended, Revoked, Unreleased int
	Release                                        string // a date, where there is something unreleased
	Keys                                           []string
}

// maxShown is how many keys a page shows: a browser on a phone has to bear it. The file has all.
const maxShown = 1000

func makeView(o fulfillment.Order, keys []inventory.Owned, now time.Time) view {
	v := view{Order: o.ID, Placed: o.PlacedAt.UTC().Format(time.DateOnly)}
	byLine := make(map[string][]string)
	shown := 0
	for _, k := range keys {
		if shown < maxShown && letter.Shown(k.Text) {
			byLine[k.Line] = append(byLine[k.Line], k.Text)
			shown++
		} else {
			v.Hidden++
		}
	}
	for _, l := range o.Lines {
		if len(l.Units) == 0 {
			continue // sold by somebody else, or no keys here
		}
		p := product{Name: letter.Name(l.Name), Keys: byLine[l.ID]}
		later := l.ReleaseAt != nil && l.ReleaseAt.After(now)
		if later {
			p.Release = l.ReleaseAt.UTC().Format(time.DateOnly)
		}
		for _, u := range l.Units {
			switch u.State {
			case fulfillment.UnitFulfilled:
				if later {
					p.Unreleased++
				} else {
					p.Ready++
				}
			case fulfillment.UnitPending, fulfillment.UnitWaiting, fulfillment.UnitFailed:
				p.Waiting++
			case fulfillment.UnitSuspended:
				p.Suspended++
			case fulfillment.UnitRevoked:
				p.Revoked++
			}
		}
		v.Ready += p.Ready
		v.Products = append(v.Products, p)
	}
	return v
}
