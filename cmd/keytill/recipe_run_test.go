package main_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keytill/keytill/internal/hooktest"
	"github.com/keytill/keytill/internal/smtptest"
	"github.com/keytill/keytill/internal/stripefake"
)

// newKitchen has what the recipes take for granted: keytill and its rivals' tools on the PATH, an empty database, Stripe
// with a price, and a mail server.
func newKitchen(t *testing.T, config stripefake.Config) (*kitchen, *stripefake.Server, *smtptest.Server) {
	t.Helper()
	need(t, "curl", "jq", "openssl", "iconv")
	stripe := stripefake.Start(config)
	t.Cleanup(stripe.Close)
	if err := stripe.Price("price_editor", stripefake.Fields{"unit_amount": "1900"}); err != nil {
		t.Fatal(err)
	}
	mail := smtptest.Start()
	t.Cleanup(mail.Close)
	k := &kitchen{t: t, dir: t.TempDir(), address: freeAddress(t), database: withoutSchema(t), at: make(map[string]func())}
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "KEYTILL_") && !strings.HasPrefix(variable, "PG") {
			k.env = append(k.env, variable)
		}
	}
	k.env = append(k.env,
		"PATH="+strings.Join([]string{filepath.Dir(program(t)), os.Getenv("PATH"), "/usr/sbin"}, string(os.PathListSeparator)),
		"KEYTILL_DATABASE_URL="+k.database,
		"KEYTILL_STRIPE_API_KEY="+stripe.APIKey(),
		"KEYTILL_STRIPE_WEBHOOK_SECRETS="+strings.Join(stripe.Secrets(), ","),
		"KEYTILL_STRIPE_API_URL="+stripe.URL(),
		"KEYTILL_SMTP_URL="+mail.URL(), "KEYTILL_MAIL_FROM=Shop <shop@example.com>",
		"KEYTILL_LISTEN="+k.address)
	return k, stripe, mail
}

// packages are Debian's names for programs that recipes use.
var packages = map[string]string{"iconv": "libc-bin", "pgbouncer": "pgbouncer", "psql": "postgresql-client", "pg_dump": "postgresql-client",
	"pg_restore": "postgresql-client"}

// need fails a test where a program is missing that a recipe uses.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, name := range programs {
		_, err := exec.LookPath(name)
		if err != nil {
			_, err = exec.LookPath(filepath.Join("/usr/sbin", name)) // where Debian has some, and only root's PATH looks
		}
		if err != nil {
			pkg := packages[name]
			if pkg == "" {
				pkg = name
			}
			t.Fatalf("recipes are run with %s, which is not on this machine: apt-get install %s", name, pkg)
		}
	}
}

// pay pays a session that the recipe's commands have opened, and returns its id.
func (k *kitchen) pay(stripe *stripefake.Server, file string) string {
	k.t.Helper()
	text, err := os.ReadFile(filepath.Join(k.dir, file))
	if err != nil {
		k.t.Fatal(err)
	}
	var session struct{ ID, URL string }
	if err := json.Unmarshal(text, &session); err != nil || session.URL == "" {
		k.t.Fatalf("%s is no open session: %s", file, text)
	}
	if err := stripe.Complete(session.ID, nil); err != nil {
		k.t.Fatal(err)
	}
	return session.ID
}

// refund pays a session back in full.
func refund(t *testing.T, stripe *stripefake.Server, id, session string) {
	t.Helper()
	if err := stripe.Refund(id, "pi_"+strings.TrimPrefix(session, "cs_"), nil); err != nil {
		t.Fatal(err)
	}
}

// receiver is a storefront's, that keeps the last notice as it came.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	body   []byte
	header http.Header
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.body, r.header = body, req.Header
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) last() ([]byte, http.Header) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.body, r.header
}

// eventually waits until something is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !so(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it is not so that %s", what)
		}
	}
}

func TestRecipeAnyLanguage(t *testing.T) {
	t.Parallel()
	k, stripe, mail := newKitchen(t, stripefake.Config{})
	shop := newReceiver(t)
	k.env = append(k.env, "KEYTILL_HOOK_SECRET="+hooktest.NewSecret())
	k.instead = append(k.instead, "https://api.stripe.com", stripe.URL(), "https://shop.example.com/hooks", shop.URL)
	var session string
	k.at["On the thank-you page"] = func() { session = k.pay(stripe, "session.json") }
	k.at["Hear of keys that are taken back"] = func() { refund(t, stripe, "re_1", session) }
	k.at["Check a notice"] = func() {
		eventually(t, "the notice has come", func() bool { body, _ := shop.last(); return body != nil })
		body, header := shop.last()
		writeFile(t, filepath.Join(k.dir, "notice.json"), string(body))
		for variable, name := range map[string]string{"webhook_id": "webhook-id", "webhook_timestamp": "webhook-timestamp", "webhook_signature": "webhook-signature"} {
			k.terminal.tell(variable + "='" + header.Get(name) + "'\n")
		}
	}
	k.cook("any-language")
	// The keys once, and once more for two requests with one Idempotency-Key.
	if got := mail.MessagesTo("buyer@example.com"); len(got) != 2 || !strings.Contains(got[1].Text, "EDITOR-1") {
		t.Errorf("%d mails, want 2 with the key", len(got))
	}
}

func TestRecipeImport(t *testing.T) {
	t.Parallel()
	k, stripe, _ := newKitchen(t, stripefake.Config{})
	k.must("keytill keyset new > keyset.json; export KEYTILL_KEYSET_FILE=keyset.json; keytill migrate")
	k.at["A bad batch"] = func() {
		if err := sell(stripe, "cs_editor", "price_editor*1@1900"); err != nil {
			t.Fatal(err)
		}
		k.must("keytill pool map editor --price price_editor && keytill order settle cs_editor")
	}
	k.cook("import")
}

func TestRecipeRotate(t *testing.T) {
	t.Parallel()
	config := stripefake.Config{APIKeys: []string{"sk_test_old", "sk_test_new"}}
	k, stripe, _ := newKitchen(t, config)
	was, next := stripe.Secrets()[0], stripe.Secrets()[1]
	k.instead = append(k.instead, "whsec_new…", next, "whsec_old…", was, "sk_test_new…", config.APIKeys[1])
	shop := newReceiver(t)
	k.env = append(k.env, "KEYTILL_HOOK_URL="+shop.URL, "KEYTILL_HOOK_SECRET="+hooktest.NewSecret())
	k.must(`export KEYTILL_STRIPE_WEBHOOK_SECRETS=` + was + `
		keytill keyset new > keyset.json; export KEYTILL_KEYSET_FILE=keyset.json; keytill migrate
		printf '%s\n' EDITOR-1 EDITOR-2 EDITOR-3 > keys.txt
		keytill pool create editor; keytill pool map editor --price price_editor; keytill import editor keys.txt
		keytill token new --role storefront --name shop --json | jq -r .line > tokens.txt; export KEYTILL_TOKENS_FILE=tokens.txt
		keytill serve 2>> keytill.log & daemon=$!; until curl -fs http://` + k.address + `/readyz; do sleep 0.2; done`)
	for _, session := range []string{"cs_1", "cs_2", "cs_3"} {
		if err := sell(stripe, session, "price_editor*1@1900"); err != nil {
			t.Fatal(err)
		}
	}
	// post posts a sale's event, signed with the first or the second secret.
	post := func(session string, secret int) int {
		event, err := stripe.Event("checkout.session.completed", session, stripefake.EventOptions{Secret: secret})
		if err != nil {
			t.Fatal(err)
		}
		status, _, err := stripe.Deliver(t.Context(), "http://"+k.address+"/webhooks/stripe", event)
		if err != nil {
			t.Fatal(err)
		}
		return status
	}
	signatures := func(kind, session string) int {
		eventually(t, "the storefront is told of "+session, func() bool {
			body, _ := shop.last()
			return strings.Contains(string(body), kind) && strings.Contains(string(body), session)
		})
		_, header := shop.last()
		return len(strings.Fields(header.Get("webhook-signature")))
	}
	k.after(`whsec_new…,whsec_old…`, func() {
		old := post("cs_1", 1)
		k.must("for n in $(seq 300); do keytill order show cs_1 > /dev/null 2>&1 && break; sleep 0.1; done") // so that it has the first key
		if new := post("cs_2", 2); old != http.StatusOK || new != http.StatusOK {
			t.Errorf("with both secrets: %d for the old one, %d for the new one", old, new)
		}
	})
	k.after(`WEBHOOK_SECRETS=whsec_new…
`, func() {
		if old, new := post("cs_3", 1), post("cs_2", 2); old != http.StatusBadRequest || new != http.StatusOK {
			t.Errorf("with the new secret alone: %d for the old one, %d for the new one", old, new)
		}
	})
	k.after("sk_test_new…", func() {
		if stripe.Calls("/v1/checkout/sessions") == 0 {
			t.Error("the sweep did not ask Stripe")
		}
	})
	k.after("HOOK_SECRET=$new,$old", func() {
		refund(t, stripe, "re_1", "cs_1")
		k.must("keytill order settle cs_1")
		if n := signatures("key.revoked", "cs_1"); n != 2 {
			t.Errorf("%d signatures with both secrets", n)
		}
	})
	k.after("HOOK_SECRET=$new\n", func() {
		k.must("keytill order settle cs_3")
		if n := signatures("fulfillment.completed", "cs_3"); n != 1 {
			t.Errorf("%d signatures with the new secret", n)
		}
	})
	k.cook("rotate")
	k.must("keytill order show cs_2 --reveal --reason test | grep EDITOR-2; ! grep '^shop ' tokens.txt; grep '^shop-2 ' tokens.txt")
}

func TestRecipeRestore(t *testing.T) {
	t.Parallel()
	need(t, "psql", "pg_dump", "pg_restore")
	k, stripe, mail := newKitchen(t, stripefake.Config{
		Now: func() time.Time { return time.Now().Add(-time.Hour) }, // all of it is an hour ago: a sweep leaves alone what is quite new
	})
	elsewhere := t.TempDir()
	k.instead = append(k.instead, "/somewhere/else", elsewhere)
	buy := func(session string) {
		if err := sell(stripe, session, "price_editor*1@1900"); err != nil {
			t.Fatal(err)
		}
		k.must("keytill order settle " + session)
	}
	// It sweeps not by itself, so that no sweep is under way when the backup is made.
	up := `keytill serve --reconcile-every off 2>> before.log & daemon=$!; until curl -fs http://` + k.address + `/readyz; do sleep 0.2; done; `
	k.must(`keytill keyset new > keyset.json; export KEYTILL_KEYSET_FILE=keyset.json; keytill migrate
		printf '%s\n' EDITOR-1 EDITOR-2 EDITOR-3 EDITOR-4 > keys.txt; echo FRESH-1 > fresh.txt
		keytill pool create editor; keytill pool map editor --price price_editor; keytill import editor keys.txt; ` + up)
	buy("cs_1")
	eventually(t, "the first buyer has a mail", func() bool { return mail.Count() == 1 })
	k.at["Bring it back"] = func() {
		// After the backup: a sale, and a refund of what was sold before.
		buy("cs_2")
		eventually(t, "the second buyer has a mail", func() bool { return mail.Count() == 2 })
		refund(t, stripe, "re_1", "cs_1")
		k.must("keytill order settle cs_1; kill $daemon && wait $daemon; rm keyset.json")
	}
	k.cook("restore")
	eventually(t, "the second buyer has another mail", func() bool { return mail.Count() >= 3 })
	var texts []string
	for _, m := range mail.Messages() {
		texts = append(texts, m.Text)
	}
	if !strings.Contains(texts[0], "EDITOR-1") || !strings.Contains(texts[1], "EDITOR-2") || !strings.Contains(texts[len(texts)-1], "FRESH-1") {
		t.Errorf("the mails:\n%s", strings.Join(texts, "\n---\n"))
	}
}

func TestRecipeGoShop(t *testing.T) {
	t.Parallel()
	k, stripe, _ := newKitchen(t, stripefake.Config{})
	root, err := filepath.Abs(top)
	if err != nil {
		t.Fatal(err)
	}
	// This tree is not published: it stands in for the newest version. What it needs is in the module cache already.
	k.instead = append(k.instead, "go get github.com/keytill/keytill@latest",
		"go mod edit -require=github.com/keytill/keytill@v0.0.0 -replace=github.com/keytill/keytill="+root)
	k.env = append(k.env, "GOFLAGS=", "GOWORK=off", "GOPROXY=off", "GOSUMDB=off")
	k.at["The thank-you page"] = func() {
		items, err := stripefake.ParseItems("price_editor*1@1900")
		if err != nil {
			t.Fatal(err)
		}
		if err := stripe.Session("cs_1", items, stripefake.Fields{"client_reference_id": "cart-17"}); err != nil {
			t.Fatal(err)
		}
	}
	k.after("keytill stock", func() { k.must("keytill stock --json | jq -e '.[0].held.keys == 1'") })
	k.cook("go-shop")
	k.must(`keytill order show cs_1 | grep -c fulfilled`)
}
