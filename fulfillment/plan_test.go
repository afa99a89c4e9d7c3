package fulfillment

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keytill/keytill/inventory"
)

// sold is a mapped line with the units that words say (see unitsOf).
func sold(name string, pool int64, quantity, amount int64, perUnit int, units string) line {
	l := line{Line: item(name, quantity, amount).Line, pool: &inventory.Pool{ID: pool, SKU: name}, perUnit: perUnit, mapped: true}
	l.units = unitsOf(units)
	for i := range l.units {
		l.units[i].line, l.units[i].pool = l.ID, pool
	}
	l.pad()
	return l
}

func paidForLines(lines ...line) Payment {
	var items []Item
	for _, l := range lines {
		items = append(items, Item{Line: l.Line})
	}
	return paidFor(items...)
}

func TestPadGivesALineAUnitForEachKey(t *testing.T) {
	tests := []struct {
		name     string
		quantity int64
		perUnit  int
		units    int
	}{
		{"one", 1, 1, 1},
		{"none", 0, 1, 0},
		{"below none", -3, 2, 0},
		{"bundles", 3, 4, 12},
		{"the most", maxUnits, 1, maxUnits},
		{"more", maxUnits + 1, 1, maxUnits},
		{"bundles that do not fill the most", maxUnits, 3, 99_999},
		{"more than a product holds", math.MaxInt64, 100, maxUnits},
	}
	for _, tt := range tests {
		l := sold("game", 1, tt.quantity, 1000, tt.perUnit, "")
		if len(l.units) != tt.units {
			t.Errorf("%s: %d units, want %d", tt.name, len(l.units), tt.units)
		}
		for i, u := range l.units {
			if u.number != i+1 || u.state != "" || u.pool != 1 || u.line != l.ID {
				t.Errorf("%s: unit %d is %+v", tt.name, i+1, u)
				break
			}
		}
	}
	l := sold("game", 1, 3, 3000, 1, "fulfilled*")
	if len(l.units) != 3 || l.units[0].state != UnitFulfilled || l.units[2].number != 3 {
		t.Errorf("a line with a unit of three: %+v", l.units)
	}
	l = line{Line: item("new", 3, 3000).Line, perUnit: 1}
	if l.pad(); len(l.units) != 0 {
		t.Errorf("a line without a pool has units: %v", l.units)
	}
}

func TestPlanClaimsInOrderOfThePools(t *testing.T) {
	lines := []line{sold("tool", 9, 1, 500, 2, ""), sold("game", 4, 2, 2000, 1, "fulfilled*"),
		{Line: item("new", 1, 100).Line, perUnit: 1}, sold("gift", 9, 1, 0, 1, "")}
	lines[3].pool.SKU = "tool"
	p := makePlan(paidForLines(lines...), lines, nil, Policy{}, false)
	var got []string
	for _, c := range p.claims {
		for _, u := range c.units {
			got = append(got, c.pool.SKU+" "+u.line+" "+string(u.sku)+" "+string('0'+rune(u.number)))
		}
	}
	want := []string{"game li_game game 2", "tool li_tool tool 1", "tool li_tool tool 2", "tool li_gift tool 1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	if len(p.changed) != 4 || len(p.units) != 5 {
		t.Errorf("%d of %d units change, want 4 of 5", len(p.changed), len(p.units))
	}
}

// A refund of one bundle takes all its keys and none of the other's.
func TestPlanTakesABundleWhole(t *testing.T) {
	lines := []line{sold("pack", 1, 2, 2000, 3, strings.Repeat("fulfilled* ", 6))}
	pay := paidForLines(lines...)
	pay.Refunds = refunds(1000)
	p := makePlan(pay, lines, nil, Policy{}, false)
	moves := p.moves()
	if len(moves) != 1 {
		t.Fatalf("moves: %+v, want one", moves)
	}
	want := keyMove{from: inventory.Allocated, to: inventory.Revoked, reason: "refund", keys: []int64{theKey + 4, theKey + 5, theKey + 6}}
	if diff := cmp.Diff(want, moves[0], cmp.AllowUnexported(keyMove{})); diff != "" {
		t.Errorf("move (-want +got):\n%s", diff)
	}
}

func TestPlanNamesWhyKeysMove(t *testing.T) {
	dispute := func(status string) func(*Payment) {
		return func(p *Payment) { p.Disputes = []Dispute{{ID: "dp_1", Status: status}} }
	}
	tests := []struct {
		name   string
		units  string
		change func(*Payment)
		want   []keyMove
	}{
		{"nothing", "fulfilled* fulfilled*", func(*Payment) {}, nil},
		{"a refund", "fulfilled* fulfilled*", func(p *Payment) { p.Refunds = refunds(1000) },
			[]keyMove{{inventory.Allocated, inventory.Revoked, "refund", []int64{theKey + 2}}}},
		{"a refund on its way", "fulfilled* fulfilled*", func(p *Payment) {
			p.Refunds = refunds(1000)
			p.Refunds[0].Status = "pending"
		}, []keyMove{{inventory.Allocated, inventory.Suspended, "payment in question", []int64{theKey + 2}}}},
		{"a dispute", "fulfilled* fulfilled*", dispute("needs_response"),
			[]keyMove{{inventory.Allocated, inventory.Suspended, "dispute", []int64{theKey + 1, theKey + 2}}}},
		{"a dispute after a refund that failed", "fulfilled* revoked*", dispute("needs_response"),
			[]keyMove{{inventory.Allocated, inventory.Suspended, "dispute", []int64{theKey + 1}},
				{inventory.Revoked, inventory.Suspended, "dispute", []int64{theKey + 2}}}},
		{"a dispute that was lost", "suspended* suspended*", dispute("lost"),
			[]keyMove{{inventory.Suspended, inventory.Revoked, "dispute lost", []int64{theKey + 1, theKey + 2}}}},
		{"a dispute that was won", "suspended* revoked*", dispute("won"),
			[]keyMove{{inventory.Revoked, inventory.Allocated, "restored", []int64{theKey + 2}},
				{inventory.Suspended, inventory.Allocated, "restored", []int64{theKey + 1}}}},
		{"what a person took", "revoked*! revoked*!", dispute("won"), nil},
		{"a review", "fulfilled* waiting", func(p *Payment) { p.Reviews = []Review{{ID: "prv_1", Open: true}} },
			[]keyMove{{inventory.Allocated, inventory.Suspended, "payment in question", []int64{theKey + 1}}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			lines := []line{sold("game", 1, 2, 2000, 1, tt.units)}
			pay := paidForLines(lines...)
			tt.change(&pay)
			p := makePlan(pay, lines, nil, Policy{}, false)
			got := p.moves()
			if len(got) != len(tt.want) || len(got) > 0 && !cmp.Equal(tt.want, got, cmp.AllowUnexported(keyMove{})) {
				t.Errorf("moves %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestPlanCountsWhatUnitsEndAs(t *testing.T) {
	lines := []line{sold("game", 1, 5, 5000, 1, "fulfilled* waiting fulfilled*"), sold("tool", 2, 1, 100, 1, "failed")}
	pay := paidForLines(lines...)
	pay.Refunds = refunds(2000)
	p := makePlan(pay, lines, nil, Policy{}, false)
	for _, c := range p.claims {
		p.leave(c.units, UnitWaiting)
	}
	got := p.holds()
	for state, n := range got {
		if n == 0 {
			delete(got, state)
		}
	}
	// Of five units the two without rows are as good as those that wait, and have the highest numbers.
	want := map[UnitState]int{UnitFulfilled: 2, UnitWaiting: 1, UnitRevoked: 2, UnitFailed: 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("units by state (-want +got):\n%s", diff)
	}
}

// A line of more keys than one line can get is not left short in silence.
func TestPlanAsksAboutALineThatIsTooLarge(t *testing.T) {
	lines := []line{sold("game", 1, maxUnits+5, maxUnits+5, 1, "")}
	pay := paidForLines(lines...)
	p := makePlan(pay, lines, nil, Policy{}, false)
	if diff := cmp.Diff([]string{"shortage li_game"}, asked(p.verdict.Questions)); diff != "" {
		t.Errorf("questions (-want +got):\n%s", diff)
	}
	pay.Refunds = refunds(5)
	p = makePlan(pay, lines, nil, Policy{}, false)
	if len(p.verdict.Questions) != 0 || len(p.claims) != 1 || len(p.claims[0].units) != maxUnits {
		t.Errorf("the rest is refunded: %d claims, questions %v; want keys for all that is left", len(p.claims), p.verdict.Questions)
	}
	lines[0].pool = nil
	lines[0].units = nil
	if p = makePlan(paidForLines(lines...), lines, nil, Policy{}, false); len(p.verdict.Questions) != 0 {
		t.Errorf("a line without keys: %v", p.verdict.Questions)
	}
}

func TestRetryClaimsForUnitsThatFailed(t *testing.T) {
	lines := []line{sold("game", 1, 4, 4000, 1, "fulfilled* failed waiting failed")}
	pay := paidForLines(lines...)
	pay.Refunds = refunds(1000)
	p := makePlan(pay, lines, nil, Policy{}, true)
	if len(p.claims) != 1 || len(p.claims[0].units) != 1 || p.claims[0].units[0].number != 2 {
		t.Errorf("claims %+v, want one for unit 2 of those that the refund left", p.claims)
	}
	p.leave(p.claims[0].units, UnitFailed)
	if holds := p.holds(); holds[UnitFailed] != 1 || holds[UnitRevoked] != 1 {
		t.Errorf("still no key: %v, want one failed and one revoked", holds)
	}
	if p = makePlan(pay, lines, nil, Policy{}, false); len(p.claims) != 0 {
		t.Errorf("without being asked to: %+v, want no claims", p.claims)
	}
}
