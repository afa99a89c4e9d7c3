package integration_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	stripego "github.com/stripe/stripe-go/v76"

	"github.com/keytill/keytill/adapter/stripeapi"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
	sweep "github.com/keytill/keytill/reconcile"
)

// A route is a call of the API, with what its answer decodes into.
type route struct {
	path   string // below /v1
	answer func() any
}

// routes are all that keytill calls.
var routes = []route{
	{"checkout/sessions", func() any { return new(stripego.CheckoutSessionList) }},
	{"checkout/sessions/ID", func() any { return new(stripego.CheckoutSession) }},
	{"checkout/sessions/ID/line_items", func() any { return new(stripego.LineItemList) }},
	{"payment_intents", func() any { return new(stripego.PaymentIntentList) }},
	{"payment_intents/ID", func() any { return new(stripego.PaymentIntent) }},
	{"charges/ID", func() any { return new(stripego.Charge) }},
	{"refunds", func() any { return new(stripego.RefundList) }},
	{"refunds/ID", func() any { return new(stripego.Refund) }},
	{"disputes", func() any { return new(stripego.DisputeList) }},
	{"disputes/ID", func() any { return new(stripego.Dispute) }},
	{"radar/early_fraud_warnings", func() any { return new(stripego.RadarEarlyFraudWarningList) }},
	{"radar/early_fraud_warnings/ID", func() any { return new(stripego.RadarEarlyFraudWarning) }},
	{"reviews/ID", func() any { return new(stripego.Review) }},
	{"events", func() any { return new(stripego.EventList) }},
	{"webhook_endpoints", func() any { return new(stripego.WebhookEndpointList) }},
}

// Every call that keytill makes is put to stripe-mock, which knows Stripe's own description of its API: it must take the
// call, and its answer must decode. keytill itself gets the fake's answer, which has the state that leads to all calls.
func TestStripeTakesEveryCallThatKeytillMakes(t *testing.T) {
	t.Parallel()
	fake := stripefake.Start(stripefake.Config{})
	t.Cleanup(fake.Close)
	both := &conformance{t: t, fake: fake.URL(), mock: startMock(t), seen: make(map[string]int)}
	front := httptest.NewServer(both)
	t.Cleanup(front.Close)
	everyCall(t, fake, newClient(t, front.URL, fake.APIKey()))
	for _, r := range routes {
		if both.seen[r.path] == 0 {
			t.Errorf("nothing called %s: the test has lost its way to it, or it can go from the list", r.path)
		}
	}
	t.Logf("calls by route: %v", both.seen)
}

// The whole way with stripe-mock for a Stripe: what it says makes no sense together. All of it is read, and then either taken
// or refused for just that.
func TestKeytillReadsWhatStripeMockSays(t *testing.T) {
	t.Parallel()
	client := newClient(t, startMock(t), "sk_test_123")
	for _, ref := range []string{"cs_1", "pi_1", "ch_1", "re_1", "dp_1", "issfr_1", "prv_1"} {
		if _, err := client.Payment(t.Context(), inventory.DefaultMerchant, ref); err != nil && !errors.Is(err, fulfillment.ErrNotOurs) &&
			!errors.Is(err, stripeapi.ErrContradiction) {
			t.Errorf("%s: %v", ref, err)
		}
	}
}

func newClient(t *testing.T, url, key string) *stripeapi.Client {
	t.Helper()
	client, err := stripeapi.New(stripeapi.Config{Key: key, URL: url, PerSecond: 10_000,
		Account: func(context.Context, string) (string, error) { return "", nil }})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// everyCall reads payments by all their ids, and walks all lists.
func everyCall(t *testing.T, fake *stripefake.Server, client *stripeapi.Client) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	items, err := stripefake.ParseItems("price_game*1..130")
	check(err)
	check(fake.Session("cs_1", items, nil))
	check(fake.Intent("pi_2", stripefake.Fields{"amount": "1000", "metadata.keytill_lines": "price_game"}))
	check(fake.WebhookEndpoint("we_1", stripefake.Fields{"url": "https://shop.example/webhooks/stripe"}))
	for n := range 101 { // one more than a page
		check(fake.Refund(fmt.Sprintf("re_%d", n), "pi_1", stripefake.Fields{"amount": "10"}))
	}
	check(fake.Dispute("dp_1", "pi_1", nil))
	check(fake.Warning("issfr_1", "pi_1", nil))
	check(fake.Review("prv_1", "pi_1", nil))
	_, err = fake.Happened("checkout.session.completed", "cs_1")
	check(err)

	for _, ref := range []string{"cs_1", "pi_1", "pi_2", "ch_1", "re_1", "dp_1", "issfr_1", "prv_1"} {
		payment, err := client.Payment(t.Context(), inventory.DefaultMerchant, ref)
		check(err)
		if payment.Session != nil && (len(payment.Lines) != 130 || len(payment.Refunds) != 101 || len(payment.Disputes) != 1 ||
			len(payment.Warnings) != 1 || len(payment.Reviews) != 1) {
			t.Errorf("%s: %d lines, %d refunds, %d disputes, %d warnings, %d reviews", ref, len(payment.Lines), len(payment.Refunds),
				len(payment.Disputes), len(payment.Warnings), len(payment.Reviews))
		}
	}
	for _, id := range []string{"cs_1", "pi_1", "re_1", "dp_1"} {
		_, err := client.Object(t.Context(), inventory.DefaultMerchant, id)
		check(err)
	}
	span := sweep.Span{From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour)}
	for _, kind := range sweep.Kinds {
		if kind == sweep.Open {
			continue // no list of Stripe's
		}
		page, err := client.Page(t.Context(), inventory.DefaultMerchant, kind, span, "")
		check(err)
		if len(page.Objects) == 0 {
			t.Errorf("no %s in the list", kind)
			continue
		}
		_, err = client.Page(t.Context(), inventory.DefaultMerchant, kind, span, page.Objects[0].ID)
		check(err)
	}
	_, err = client.ListEndpoints(t.Context())
	check(err)
}

// conformance stands before both Stripes.
type conformance struct {
	t          *testing.T
	fake, mock string

	mu   sync.Mutex
	seen map[string]int // calls by route
}

var objectID = regexp.MustCompile(`^(cs|pi|ch|re|dp|issfr|prv)_`)

// ServeHTTP puts a call to the one and answers it with the other's answer.
func (c *conformance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = c.mockTakes(r, body)
	}
	if err != nil {
		c.t.Errorf("%s %s: %v", r.Method, r.URL, err)
	}
	status, answer, err := forward(r, c.fake, body)
	if err != nil {
		c.t.Errorf("%s %s: %v", r.Method, r.URL, err)
		status = http.StatusBadGateway
	}
	w.WriteHeader(status)
	_, _ = w.Write(answer) // the client has gone, or it has not
}

func (c *conformance) mockTakes(r *http.Request, body []byte) error {
	parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/"), "/")
	for i, part := range parts {
		if objectID.MatchString(part) {
			parts[i] = "ID"
		}
	}
	called := strings.Join(parts, "/")
	i := slices.IndexFunc(routes, func(known route) bool { return known.path == called })
	if i < 0 {
		return fmt.Errorf("%s is no route that is known here", called)
	}
	c.mu.Lock()
	c.seen[called]++
	c.mu.Unlock()
	status, answer, err := forward(r, c.mock, body)
	if err != nil {
		return err
	}
	if status != http.StatusOK {
		return fmt.Errorf("stripe-mock answers %d %s", status, answer)
	}
	return json.Unmarshal(answer, routes[i].answer())
}

func forward(r *http.Request, to string, body []byte) (int, []byte, error) {
	out, err := http.NewRequestWithContext(r.Context(), r.Method, to+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	out.Header = r.Header.Clone()
	out.Header.Del("Accept-Encoding")
	resp, err := http.DefaultClient.Do(out)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it is read below
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// mockTimeout is for its build too.
const mockTimeout = 3 * time.Minute

// startMock builds the stripe-mock that the project's tools pin, starts it on the loopback interface, and ends it with
// the test.
func startMock(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), mockTimeout)
	defer cancel()
	program := filepath.Join(t.TempDir(), "stripe-mock")
	build := exec.CommandContext(ctx, "go", "build", "-modfile="+filepath.FromSlash(".ci/tools/go.mod"), "-o", program,
		"github.com/stripe/stripe-mock")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build stripe-mock: %v\n%s", err, out)
	}
	mock := exec.Command(program, "-http-addr", "127.0.0.1:0", "-https-addr", "127.0.0.1:0")
	out, err := mock.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := mock.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = mock.Process.Kill()
		_ = mock.Wait() // it was killed
	})
	address := make(chan string, 1)
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if _, at, ok := strings.Cut(lines.Text(), "Listening for HTTP at address: "); ok {
				address <- strings.TrimSpace(at)
			}
		}
		close(address)
	}()
	select {
	case at, ok := <-address:
		if !ok {
			t.Fatal("stripe-mock ended without listening")
		}
		return "http://" + at
	case <-ctx.Done():
		t.Fatal("stripe-mock does not start")
		return ""
	}
}
