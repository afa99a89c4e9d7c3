package webhooks

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzMembers holds that members finds in any JSON what encoding/json finds in it, names written in escapes among them, the
// last one where a name comes twice.
func FuzzMembers(f *testing.F) {
	for _, body := range []string{
		`{"id":"evt_1","data":{"object":{"id":"pi_1","amount":-1.5e+3,"metadata":{}}},"livemode":true,"x":null,"y":[]}`,
		" \t\r\n{ \"id\" : \"a\" , \"id\"\n:\"b\" , \"list\" : [ 1 , { \"id\" : \"]\" } , [ ] , \"\\\"}\" ] } \n",
		`{"\u0069d":"escaped","i\/d":"\\","\\":"\"","":"","ü":"\ud83d\ude00"}`,
		`{"a":"x\\","b":"{","c":{"d":"}"},"e":1}`,
		`{"a":1,"b":false,"c":0.1}`, `{ }`, `[]`, `"id"`, `7`, `null`, `{`,
	} {
		f.Add([]byte(body))
	}
	for _, file := range []string{"refund.created", "review.opened"} {
		f.Add(fixture(f, "2025-09-30.clover", file))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var want map[string]json.RawMessage
		err := json.Unmarshal(body, &want)
		if json.Valid(body) != (check(body) == nil) {
			t.Fatalf("check says %v", check(body))
		}
		if check(body) != nil {
			return
		}
		if err != nil {
			want = nil // JSON, and no object
		}
		got := members(body, slices.Collect(maps.Keys(want))...)
		for name := range want {
			if bytes.ContainsRune([]byte(name), '\uFFFD') { // of broken UTF-8, in which nobody asks for a name
				delete(want, name)
				delete(got, name)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("members of %q (-want +got):\n%s", body, diff)
		}
	})
}
