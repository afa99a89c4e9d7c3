package webhooks

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDecodeKeepsTheFieldsThatMatter(t *testing.T) {
	got, err := Decode([]byte(`{
		"id": "evt_1", "object": "event", "api_version": "2023-10-16", "created": 1704164645, "livemode": true,
		"account": "acct_1", "type": "charge.refunded", "pending_webhooks": 2,
		"request": {"id": "req_1", "idempotency_key": null},
		"data": {"object": {"id": "ch_1", "object": "charge", "payment_intent": "pi_1", "refunds": null}}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	want := Event{
		ID: "evt_1", Type: "charge.refunded", Account: "acct_1", APIVersion: "2023-10-16", Livemode: true,
		Created:  time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC),
		ObjectID: "ch_1", Object: "charge", Payment: "pi_1",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestDecodePointsToThePayment(t *testing.T) {
	tests := []struct {
		name, object, want string
	}{
		{"intent as id", `{"id":"ch_1","payment_intent":"pi_1"}`, "pi_1"},
		{"intent expanded", `{"id":"ch_1","payment_intent":{"id":"pi_1","object":"payment_intent"}}`, "pi_1"},
		{"intent before charge", `{"id":"re_1","charge":"ch_1","payment_intent":"pi_1"}`, "pi_1"},
		{"intent null, charge as id", `{"id":"re_1","charge":"ch_1","payment_intent":null}`, "ch_1"},
		{"intent absent, charge expanded", `{"id":"re_1","charge":{"id":"py_1","object":"charge"}}`, "py_1"},
		{"intent empty", `{"id":"re_1","charge":"ch_1","payment_intent":""}`, "ch_1"},
		{"intent of a wrong type", `{"id":"re_1","charge":"ch_1","payment_intent":[{"id":"pi_1"}]}`, "ch_1"},
		{"intent expanded without id", `{"id":"re_1","charge":"ch_1","payment_intent":{}}`, "ch_1"},
		{"neither", `{"id":"pi_1","object":"payment_intent","latest_charge":"ch_1"}`, "pi_1"},
		{"both null", `{"id":"cs_1","payment_intent":null,"charge":null}`, "cs_1"},
		{"one that is nested is of something else", `{"id":"cs_1","metadata":{"payment_intent":"pi_9"}}`, "cs_1"},
		{"keys match exactly", `{"id":"cs_1","Payment_Intent":"pi_9","ID":"cs_9"}`, "cs_1"},
		{"no id at all", `{"object":"balance"}`, ""},
		{"id of a wrong type", `{"id":7,"object":"balance"}`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ev, err := Decode(event(`"data":{"object":` + tt.object + `}`))
			if err != nil {
				t.Fatal(err)
			}
			if ev.Payment != tt.want {
				t.Errorf("payment is %q, want %q", ev.Payment, tt.want)
			}
		})
	}
}

func TestDecodeTakesAnOddHintForAbsent(t *testing.T) {
	none := Event{ID: "evt_1", Type: "a.b"}
	with := func(change func(*Event)) Event {
		ev := none
		change(&ev)
		return ev
	}
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	tests := []struct {
		name, members string
		want          Event
	}{
		{"request as string", `"request":"req_1"`, none},
		{"request as object", `"request":{"id":null}`, none},
		{"api_version null", `"api_version":null`, none},
		{"api_version a number", `"api_version":2023`, none},
		{"account null", `"account":null`, none},
		{"account an object", `"account":{"id":"acct_1"}`, none},
		{"livemode a string", `"livemode":"true"`, none},
		{"livemode a number", `"livemode":1`, none},
		{"created null", `"created":null`, none},
		{"created an object", `"created":{}`, none},
		{"created a fraction", `"created":1.5`, none},
		{"created before 1970", `"created":-1`, none},
		{"created after 9999", `"created":253402300800`, none},
		{"created beyond all integers", `"created":99999999999999999999`, none},
		{"created at the end of int64", `"created":9223372036854775807`, none},
		{"created no date", `"created":"yesterday"`, none},
		{"data null", `"data":null`, none},
		{"data empty", `"data":{}`, none},
		{"data a list", `"data":[{"object":{"id":"pi_1"}}]`, none},
		{"data a string", `"data":"pi_1"`, none},
		{"object null", `"data":{"object":null}`, none},
		{"object a string", `"data":{"object":"pi_1"}`, none},
		{"object a list", `"data":{"object":[{"id":"pi_1"}]}`, none},
		{"object empty", `"data":{"object":{}}`, none},
		{"related_object null", `"related_object":null`, none},
		{"unknown fields", `"context":"acct_1","data":{"previous_attributes":{"id":"x"}},"x":` + deep, none},
		{"object id chosen by the merchant and long", `"data":{"object":{"id":"` + strings.Repeat("c", 300) + `","object":"coupon"}}`,
			with(func(ev *Event) { ev.Object = "coupon" })},
		{"duplicate keys, the last counts", `"account":"acct_1","data":{"object":{"id":"pi_1"}},
			"account":"acct_2","data":{"object":{"id":"pi_2","id":"pi_3"}}`,
			with(func(ev *Event) { ev.Account, ev.ObjectID, ev.Payment = "acct_2", "pi_3", "pi_3" })},
		{"escapes are not part of the text", `"account":"acct\u005f1"`, with(func(ev *Event) { ev.Account = "acct_1" })},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Decode(event(tt.members))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDecodeReadsThinEvents(t *testing.T) {
	thin := func(context string) Event {
		t.Helper()
		ev, err := Decode([]byte(`{"id":"evt_1","object":"v2.core.event","type":"v1.billing.meter.no_meter_found",
			"livemode":false,"created":"2026-01-01T00:00:00.000Z","context":` + context + `,
			"related_object":{"id":"mtr_1","type":"billing.meter","url":"/v1/billing/meters/mtr_1"}}`))
		if err != nil {
			t.Fatal(err)
		}
		return ev
	}
	want := Event{
		ID: "evt_1", Type: "v1.billing.meter.no_meter_found", Created: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		ObjectID: "mtr_1", Object: "billing.meter", Payment: "mtr_1",
	}
	for _, context := range []string{`null`, `7`, `"org_1"`, `"acct_1/acct_2"`} {
		if diff := cmp.Diff(want, thin(context)); diff != "" {
			t.Errorf("context %s: %s", context, diff)
		}
	}
	want.Account = "acct_1"
	if diff := cmp.Diff(want, thin(`"acct_1"`)); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeRefusesWhatIsNoEvent(t *testing.T) {
	long := strings.Repeat("x", 256)
	mib := 1 << 20
	tests := []struct {
		name, body, want string
	}{
		{"empty", ``, "not JSON"},
		{"text", `hello`, "not JSON"},
		{"cut off", `{"id":"evt_1","object":"event","type":`, "not JSON"},
		{"more than one value", `{"id":"evt_1","type":"a.b"}{}`, "not JSON"},
		{"byte order mark", "\ufeff" + `{"id":"evt_1","type":"a.b"}`, "not JSON"},
		{"null", `null`, "not a JSON object"},
		{"list", `[{"id":"evt_1","type":"a.b"}]`, "not a JSON object"},
		{"string", `"evt_1"`, "not a JSON object"},
		{"no id", `{"type":"a.b"}`, "id is missing"},
		{"id null", `{"id":null,"type":"a.b"}`, "id is missing"},
		{"id a number", `{"id":1,"type":"a.b"}`, "id is missing"},
		{"id in capitals", `{"ID":"evt_1","type":"a.b"}`, "id is missing"},
		{"id of something else", `{"id":"pi_1","type":"a.b"}`, "not that of an event"},
		{"id only a prefix", `{"id":"evt_","type":"a.b"}`, "not that of an event"},
		{"id too long", `{"id":"evt_` + long + `","type":"a.b"}`, "id: longer"},
		{"id with a NUL", `{"id":"evt_\u0000","type":"a.b"}`, "id: holds a NUL"},
		{"id in broken UTF-8", `{"id":"evt_` + "\xff" + `","type":"a.b"}`, "id: is not valid UTF-8"},
		{"id with half a surrogate pair", `{"id":"evt_\ud800","type":"a.b"}`, "id: is not valid UTF-8"},
		{"no type", `{"id":"evt_1"}`, "type is missing"},
		{"type an object", `{"id":"evt_1","type":{}}`, "type is missing"},
		{"type too long", `{"id":"evt_1","type":"` + long + `"}`, "type: longer"},
		{"account with a NUL", string(event(`"account":"acct_\u0000"`)), "account: holds a NUL"},
		{"object id in broken UTF-8", string(event(`"data":{"object":{"id":"` + "\xc3" + `"}}`)), "id: is not valid UTF-8"},
		{"object id with a NUL", string(event(`"data":{"object":{"id":"\u0000"}}`)), "id: holds a NUL"},
		{"payment with a NUL", string(event(`"data":{"object":{"payment_intent":"pi_\u0000"}}`)), "payment_intent: holds a NUL"},
		{"payment too long", string(event(`"data":{"object":{"charge":{"id":"ch_` + long + `"}}}`)), "id: longer"},
		{"last of two ids is wrong", `{"id":"evt_1","id":7,"type":"a.b"}`, "id is missing"},
		{"1 MiB of open lists", strings.Repeat("[", mib), "not JSON"},
		{"1 MiB of open objects", strings.Repeat(`{"a":`, mib/5), "not JSON"},
		{"1 MiB of lists in an event", string(event(`"data":` + strings.Repeat("[", mib/2) + strings.Repeat("]", mib/2))), "not JSON"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			start := time.Now()
			ev, err := Decode([]byte(tt.body))
			if !errors.Is(err, ErrUnreadable) {
				t.Fatalf("error is %v, want ErrUnreadable", err)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is %q, want it to say %q", err, tt.want)
			}
			if ev != (Event{}) {
				t.Errorf("an event came with the error: %+v", ev)
			}
			if len(err.Error()) > 200 {
				t.Errorf("the error holds %d bytes, as if it quoted the body", len(err.Error()))
			}
			if d := time.Since(start); d > 2*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
}

func TestDecodeTakesAnIDOfFullLength(t *testing.T) {
	id := "evt_" + strings.Repeat("x", 251)
	ev, err := Decode(fmt.Appendf(nil, `{"id":%q,"type":"a.b"}`, id))
	if err != nil || ev.ID != id {
		t.Errorf("id of 255 bytes: %v, %v", ev.ID, err)
	}
}

// event is a small event with these members besides id and type.
func event(members string) []byte {
	return []byte(`{"id":"evt_1","object":"event","type":"a.b",` + members + `}`)
}
