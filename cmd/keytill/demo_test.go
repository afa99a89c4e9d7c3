package main_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keytill/keytill/cmd/keytill/demo"
)

// TestDemoStaysOpen starts the demo as somebody does who wants to look around, logs in to the console, buys, and stops it.
func TestDemoStaysOpen(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(program(t), "demo", "--serve", "--json", "--orders", "3", "--keys", "3", "--listen", "127.0.0.1:0")
	cmd.Dir = t.TempDir()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var problems strings.Builder
	cmd.Stderr = &problems
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended already unless the test failed
		_ = cmd.Wait()
	})
	var report demo.Report
	if err := json.NewDecoder(out).Decode(&report); err != nil || !report.OK || report.Open == nil {
		t.Fatalf("%v, %+v\n%s", err, report, problems.String())
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	visitor := &visitor{t: t, client: &http.Client{Jar: jar, Timeout: 20 * time.Second}}

	// The console, from outside and from within.
	if page := visitor.get(report.Open.Console + "/orders"); !strings.Contains(page, "Access token") || strings.Contains(page, "cs_demo_00001") {
		t.Errorf("without a token:\n%s", page)
	}
	visitor.post(report.Open.Console+"/login", url.Values{"token": {report.Open.Token}})
	if page := visitor.get(report.Open.Console + "/orders/cs_demo_00001"); !strings.Contains(page, "cs_demo_00001") || !strings.Contains(page, `id="history"`) {
		t.Errorf("the order in the console:\n%s", page)
	}
	// A sale and a refund in the storefront; the mail comes, as the settle does, by Stripe's webhook.
	thanks := visitor.post(report.Open.Shop+"buy", nil)
	_, key, _ := strings.Cut(thanks, "Your key: <strong>")
	key, _, _ = strings.Cut(key, "</strong>")
	if len(key) != len("XXXXX-XXXXX-XXXXX-XXXXX") {
		t.Fatalf("after a sale:\n%s", thanks)
	}
	eventually(t, "the key has been mailed", func() bool { return strings.Contains(visitor.get(report.Open.Shop+"mails"), key) })
	_, session, _ := strings.Cut(thanks, `name="session_id" value="`)
	session, _, _ = strings.Cut(session, `"`)
	if page := visitor.post(report.Open.Shop+"refund", url.Values{"session_id": {session}}); !strings.Contains(page, "is refunded") || strings.Contains(page, key) {
		t.Errorf("after a refund:\n%s", page)
	}
	if page := visitor.get(report.Open.Metrics); !strings.Contains(page, "keytill_webhooks_total") {
		t.Errorf("no metrics:\n%s", page)
	}

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(out); err != nil || len(strings.TrimSpace(string(rest))) > 0 {
		t.Errorf("after its one document: %q, %v", rest, err)
	}
	if err := cmd.Wait(); err != nil || problems.String() != "" {
		t.Errorf("%v\n%s", err, problems.String())
	}
}

// A visitor is a browser that follows redirects.
type visitor struct {
	t      *testing.T
	client *http.Client
}

func (v *visitor) get(address string) string {
	v.t.Helper()
	resp, err := v.client.Get(address)
	return v.read(resp, err)
}

func (v *visitor) post(address string, form url.Values) string {
	v.t.Helper()
	req, err := http.NewRequestWithContext(v.t.Context(), http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		v.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	resp, err := v.client.Do(req)
	return v.read(resp, err)
}

func (v *visitor) read(resp *http.Response, err error) string {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	return string(body)
}
