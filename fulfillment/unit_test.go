package fulfillment

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keytill/keytill/inventory"
)

// theKey is the id of the key that a unit of these tests has.
const theKey = 7

func TestConverge(t *testing.T) {
	type way struct {
		step step
		next UnitState
	}
	targets := []deserved{deservesNothingYet, deservesKey, deservesNoUse, deservesNothing}
	// What the four targets take, in their order.
	type row struct {
		state UnitState
		key   int64
		by    RevokedBy
		want  [4]way
	}
	tests := []row{
		{"", 0, "", [4]way{{note, UnitPending}, {claim, UnitFulfilled}, {note, UnitSuspended}, {note, UnitRevoked}}},
		{UnitPending, 0, "", [4]way{{stay, UnitPending}, {claim, UnitFulfilled}, {note, UnitSuspended}, {note, UnitRevoked}}},
		{UnitWaiting, 0, "", [4]way{{note, UnitPending}, {stay, UnitWaiting}, {note, UnitSuspended}, {note, UnitRevoked}}},
		{UnitFailed, 0, "", [4]way{{note, UnitPending}, {stay, UnitFailed}, {note, UnitSuspended}, {note, UnitRevoked}}},
		{UnitFulfilled, theKey, "", [4]way{{suspend, UnitSuspended}, {stay, UnitFulfilled}, {suspend, UnitSuspended}, {revoke, UnitRevoked}}},
		{UnitSuspended, theKey, "", [4]way{{stay, UnitSuspended}, {restore, UnitFulfilled}, {stay, UnitSuspended}, {revoke, UnitRevoked}}},
		{UnitSuspended, 0, "", [4]way{{note, UnitPending}, {claim, UnitFulfilled}, {stay, UnitSuspended}, {note, UnitRevoked}}},
		{UnitRevoked, theKey, ByPayment, [4]way{{suspend, UnitSuspended}, {restore, UnitFulfilled}, {suspend, UnitSuspended}, {stay, UnitRevoked}}},
		{UnitRevoked, 0, ByPayment, [4]way{{note, UnitPending}, {claim, UnitFulfilled}, {note, UnitSuspended}, {stay, UnitRevoked}}},
		{UnitRevoked, theKey, ByPerson, [4]way{{stay, UnitRevoked}, {stay, UnitRevoked}, {stay, UnitRevoked}, {stay, UnitRevoked}}},
		{UnitRevoked, 0, ByPerson, [4]way{{stay, UnitRevoked}, {stay, UnitRevoked}, {stay, UnitRevoked}, {stay, UnitRevoked}}},
	}
	for _, tt := range tests {
		for i, target := range targets {
			t.Run(fmt.Sprintf("%s with key %d by %s deserves %s", tt.state, tt.key, tt.by, target), func(t *testing.T) {
				u := unit{state: tt.state, key: tt.key, revokedBy: tt.by}
				step, next := converge(u, target)
				if got := (way{step, next}); got != tt.want[i] {
					t.Fatalf("%v, want %v", got, tt.want[i])
				}
				if from, to := keyStates[u.state], keyStates[next]; step > claim && !inventory.CanMove(from, to) {
					t.Errorf("no key moves from %q to %q", from, to)
				}
				if again, then := converge(after(u, step, next, true), target); again != stay || then != next {
					t.Errorf("the second time: %v to %s, want to stay %s", again, then, next)
				}
			})
		}
	}
	for _, state := range UnitStates {
		if !slices.ContainsFunc(tests, func(r row) bool { return r.state == state }) {
			t.Errorf("no case for state %s", state)
		}
	}
}

// after is a unit once a step is done, as a settle writes it. Where the shelf is empty a claim leaves the unit waiting.
func after(u unit, s step, next UnitState, stocked bool) unit {
	if s == stay {
		return u
	}
	if s == claim {
		if !stocked {
			next = UnitWaiting
		} else {
			u.key = theKey + int64(u.number)
		}
	}
	u.state, u.revokedBy = next, ""
	if next == UnitRevoked {
		u.revokedBy = ByPayment
	}
	return u
}

// unitsOf reads units from words: their state and, with a key, an asterisk; "revoked!" was taken by a person.
func unitsOf(words string) []unit {
	var units []unit
	for i, word := range strings.Fields(words) {
		u := unit{line: "li_1", number: i + 1}
		if strings.Contains(word, "*") {
			u.key = theKey + int64(u.number)
		}
		u.state = UnitState(strings.Trim(word, "*!-"))
		if u.state == UnitRevoked {
			u.revokedBy = ByPayment
			if strings.Contains(word, "!") {
				u.revokedBy = ByPerson
			}
		}
		units = append(units, u)
	}
	return units
}

func TestAssignSaysWhichUnitsLose(t *testing.T) {
	tests := []struct {
		name    string
		share   Share
		perUnit int
		units   string
		want    string
	}{
		{"the highest number", Share{Due: 2, Revoked: 1}, 1, "fulfilled* fulfilled* fulfilled*", "due due revoked"},
		{"before there are rows", Share{Due: 2, Revoked: 1}, 1, "- - -", "due due revoked"},
		{"nothing yet", Share{Pending: 2}, 1, "- pending", "pending pending"},
		{"a waiting one first", Share{Due: 2, Revoked: 1}, 1, "waiting fulfilled* fulfilled*", "revoked due due"},
		{"a failed one first", Share{Due: 1, Suspended: 1}, 1, "failed fulfilled*", "suspended due"},
		{"two waiting ones: the highest number", Share{Due: 2, Revoked: 1}, 1, "waiting waiting fulfilled*", "due revoked due"},
		{"one that has lost already", Share{Due: 2, Revoked: 1}, 1, "revoked* waiting fulfilled*", "revoked due due"},
		{"one that is suspended already", Share{Due: 2, Revoked: 1}, 1, "suspended* waiting fulfilled*", "revoked due due"},
		{"a revoked one before a suspended one", Share{Due: 1, Revoked: 1, Suspended: 1}, 1, "revoked* fulfilled* suspended*", "revoked due suspended"},
		{"the suspended one is revoked, another suspended", Share{Due: 1, Revoked: 1, Suspended: 1}, 1, "fulfilled* fulfilled* suspended*",
			"due suspended revoked"},
		{"of the suspended, one without a key first", Share{Due: 1, Revoked: 1}, 1, "suspended suspended*", "revoked due"},
		{"the one that lost last is restored first", Share{Due: 2, Revoked: 1}, 1, "fulfilled* revoked* revoked*", "due due revoked"},
		{"the one that lost a key is restored before one that had none", Share{Due: 2, Revoked: 1}, 1, "revoked fulfilled* revoked*", "revoked due due"},
		{"one that a person took counts for a refund", Share{Due: 2, Revoked: 1}, 1, "revoked*! fulfilled* fulfilled*", "revoked due due"},
		{"one that a person took counts before one that a refund took", Share{Due: 2, Revoked: 1}, 1, "revoked*! fulfilled* revoked*", "revoked due due"},
		{"one that a person took needs no suspending", Share{Due: 1, Revoked: 1, Suspended: 1}, 1, "suspended* fulfilled* revoked*!", "suspended due revoked"},
		{"a bundle loses all its keys", Share{Due: 1, Revoked: 1}, 2, "fulfilled* fulfilled* fulfilled* fulfilled*", "due due revoked revoked"},
		{"a bundle that lacks a key first", Share{Due: 1, Revoked: 1}, 2, "fulfilled* waiting fulfilled* fulfilled*", "revoked revoked due due"},
		{"a bundle that lost a key first", Share{Due: 1, Suspended: 1}, 2, "revoked*! fulfilled* waiting waiting", "suspended suspended due due"},
		{"units that are beyond a line's keys lose first", Share{Due: 3, Revoked: 2}, 1, "fulfilled* fulfilled*", "due due"},
		{"and then the others", Share{Due: 1, Revoked: 4}, 1, "fulfilled* fulfilled*", "due revoked"},
		{"no units", Share{Due: 5}, 1, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, target := range assign(tt.share, unitsOf(tt.units), tt.perUnit) {
				got = append(got, string(target))
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}
