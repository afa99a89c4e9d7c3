package webhooks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// versions are the API versions that testdata has the same events of.
var versions = []string{"2022-11-15", "2023-10-16", "2024-10-28.acacia", "2025-03-31.basil", "2025-09-30.clover"}

func TestDecodeFindsThePaymentInEveryAPIVersion(t *testing.T) {
	const (
		cs, pi, ch, re = "cs_test_a1ExampleSession0001", "pi_3OqK2eExample0001", "ch_3OqK2eExample0001", "re_3OqK2eExample0001"
		du, issfr, prv = "du_1OqK2eExample0001", "issfr_1OqK2eExample0001", "prv_1OqK2eExample0001"
	)
	tests := []struct {
		file string
		want Event
	}{
		{"checkout.session.completed", Event{Object: "checkout.session", ObjectID: cs, Payment: pi}},
		{"checkout.session.completed-expanded", Event{Object: "checkout.session", ObjectID: cs, Payment: pi}},
		{"checkout.session.completed-free", Event{Object: "checkout.session", ObjectID: cs, Payment: cs}},
		{"payment_intent.succeeded", Event{Object: "payment_intent", ObjectID: pi, Payment: pi}},
		{"payment_intent.succeeded-connect-expanded", Event{Object: "payment_intent", ObjectID: pi, Payment: pi, Account: "acct_1Example"}},
		{"charge.refunded", Event{Object: "charge", ObjectID: ch, Payment: pi}},
		{"charge.refunded-expanded", Event{Object: "charge", ObjectID: ch, Payment: pi}},
		{"charge.refunded-without-intent", Event{Object: "charge", ObjectID: ch, Payment: ch}},
		{"refund.created", Event{Object: "refund", ObjectID: re, Payment: pi}},
		{"refund.updated", Event{Object: "refund", ObjectID: re, Payment: pi}},
		{"refund.failed", Event{Object: "refund", ObjectID: re, Payment: pi}},
		{"charge.refund.updated", Event{Object: "refund", ObjectID: re, Payment: pi}},
		{"charge.refund.updated-without-intent", Event{Object: "refund", ObjectID: re, Payment: ch}},
		{"charge.refund.updated-without-intent-expanded", Event{Object: "refund", ObjectID: re, Payment: ch}},
		{"charge.dispute.created", Event{Object: "dispute", ObjectID: du, Payment: pi}},
		{"charge.dispute.created-without-intent-expanded", Event{Object: "dispute", ObjectID: du, Payment: ch}},
		{"charge.dispute.closed", Event{Object: "dispute", ObjectID: du, Payment: pi}},
		{"radar.early_fraud_warning.created", Event{Object: "radar.early_fraud_warning", ObjectID: issfr, Payment: pi}},
		{"radar.early_fraud_warning.created-without-intent", Event{Object: "radar.early_fraud_warning", ObjectID: issfr, Payment: ch}},
		{"review.opened", Event{Object: "review", ObjectID: prv, Payment: pi}},
		{"review.opened-expanded", Event{Object: "review", ObjectID: prv, Payment: pi}},
	}
	for _, version := range versions {
		for _, tt := range tests {
			t.Run(version+"/"+tt.file, func(t *testing.T) {
				got, err := Decode(fixture(t, version, tt.file))
				if err != nil {
					t.Fatal(err)
				}
				want := tt.want
				want.Type, _, _ = strings.Cut(tt.file, "-")
				want.APIVersion = version
				want.Created = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
				want.ID = got.ID // any
				if diff := cmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
			})
		}
		if files := fixtures(t, version); len(files) != len(tests) {
			t.Errorf("%s has %d events, %d are tested", version, len(files), len(tests))
		}
	}
}

func TestHandlerRecordsTheEventsOfEveryAPIVersion(t *testing.T) {
	for _, version := range versions {
		in := &inbox{}
		url := serve(t, Config{Inbox: in})
		files := fixtures(t, version)
		for _, file := range files {
			body := string(fixture(t, version, file))
			header := map[string][]string{"Stripe-Signature": {signature(body, "whsec_b", noon)}}
			if status, _, text := send(t, url, "POST", body, header, false); status != 200 {
				t.Errorf("%s/%s: answer is %d %q", version, file, status, text)
			}
		}
		if n := len(in.recorded()); n != len(files) || n == 0 {
			t.Errorf("%s: %d events recorded, %d sent", version, n, len(files))
		}
	}
}

func fixture(t testing.TB, version, file string) []byte {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", version, file+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// fixtures names the events that testdata has of a version.
func fixtures(t testing.TB, version string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", version, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, p := range paths {
		files = append(files, strings.TrimSuffix(filepath.Base(p), ".json"))
	}
	return files
}
