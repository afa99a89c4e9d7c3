package main_test

import (
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keytill/keytill/internal/stripefake"
)

// TestEveryCommandPrintsOneJSONDocument runs all commands that users rely on, in an order that makes sense, and reads what
// they print as a program does.
func TestEveryCommandPrintsOneJSONDocument(t *testing.T) {
	t.Parallel()
	s := newSale(t, 6)
	for _, sale := range []struct{ session, items string }{{"cs_1", "price_game*2@1000"}, {"cs_2", "price_game*1@1000"}} {
		if err := sell(s.stripe, sale.session, sale.items); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.stripe.Refund("re_1", "pi_1", stripefake.Fields{"amount": "300"}); err != nil {
		t.Fatal(err)
	}
	if err := s.stripe.Account("acct_1", nil); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(s.dir, "more.txt"), "MORE-1\nMORE-2\n")
	s.env["PUBLIC_URL"] = "https://keys.example.com"
	for _, line := range []string{
		"migrate", "keyset new", "keyset rotate --add",
		"merchant add acme --account acct_1",
		"pool create editor --name Editor --low 10% --shortage wait --pending-supply 3 --max-reserved 2 --release 2027-01-31T12:00:00Z",
		"pool create pin --low 5 --shortage fail",
		"pool map editor --price price_editor --per-unit 2", "pool map editor --product prod_editor", "pool map --no-keys --price price_post",
		"pool list",
		"import editor more.txt --dry-run", "import editor more.txt --supplier Wholesale", "import editor more.txt --force",
		"stock", "stock editor", "stock rebuild", "stock rebuild editor",
		"order settle cs_1", "order settle cs_2", "order show cs_1", "order show buyer@example.com", "order show --key GAME-0001",
		"order show cs_1 --reveal --reason test", "order resend cs_1", "order resend cs_1 --to other@example.com --reason test", "order retry cs_1",
		"order link cs_1 --reason test", "order link cs_1 --end --reason test",
		"key verify GAME-0001", "key verify GAME-0001 --sku game", "key replace --order cs_1 --unit 1 --reason test",
		"key revoke --order cs_2 --line li_2_1 --unit 1 --reason test",
		"findings", "refund attribute re_1 --lines none --reason goodwill", "audit --most 5",
		"batch list --pool game", "batch quarantine --pool game --last --reason test", "batch release --pool game --last", "batch recall --pool editor --last",
		"reconcile --since 72h --dry-run", "reconcile",
		"doctor", "token new --role admin --name test", "dashboards", "hooks schema", "recipe", "recipe restore",
	} {
		got := run(t.Context(), s.env, s.dir, append(strings.Fields(line), "--json")...)
		decoder := json.NewDecoder(strings.NewReader(got.stdout))
		var document any
		if err := decoder.Decode(&document); err != nil || got.code != 0 {
			t.Errorf("keytill %s: exit %d, %v\n%s%s", line, got.code, err, got.stdout, got.stderr)
			continue
		}
		if err := decoder.Decode(&document); err != io.EOF {
			t.Errorf("keytill %s prints more than one document:\n%s", line, got.stdout)
		}
	}
}

// Exit 2 is for who typed something wrong, 1 for what could not be done; either comes with one line.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	s := newSale(t, 1)
	for line, want := range map[string]int{
		"": 0, "help": 0, "stock --help": 0, "stock": 0,
		"nope": 2, "--nope": 2, "pool": 2, "pool nope": 2, "stock a b": 2, "stock --log loud": 2, "order show": 2, "recipe nope": 2,
		"key revoke --order cs_1 --unit 1": 2, "pool create x --low many": 2, "import game keys.txt --format xml": 2, "demo --orders 0": 2,
		"order show nobody@example.com": 1, "order resend cs_9": 1, "order settle cs_9": 1, "pool create game": 1, "import game keys.txt": 1,
		"import game none.txt": 1, "import nope keys.txt": 1, "batch recall --pool game --id 99": 1, "keyset rotate": 1,
	} {
		got := run(t.Context(), s.env, s.dir, strings.Fields(line)...)
		if got.code != want || want != 0 && (strings.Count(got.stderr, "\n") != 1 || got.stdout != "") {
			t.Errorf("keytill %s: exit %d, want %d\n%s%s", line, got.code, want, got.stdout, got.stderr)
		}
	}
}
