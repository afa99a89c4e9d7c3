package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/stripefake"
)

// top is the module's root, seen from where these tests run.
const top = "../.."

const readmeLines = 200

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks are the README's blocks of one language.
func blocks(t *testing.T, language string, want int) []string {
	t.Helper()
	var found []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(readme(t), -1) {
		found = append(found, m[1])
	}
	if len(found) != want {
		t.Fatalf("the README has %d blocks of %s, want %d", len(found), language, want)
	}
	return found
}

// shell are the README's commands: to try it, to run the daemon, and to mind the shop.
func shell(t *testing.T) (try, daemon, mind string) {
	t.Helper()
	b := blocks(t, "sh", 3)
	return b[0], b[1], b[2]
}

func TestReadmeIsShortAndNamesItsSources(t *testing.T) {
	t.Parallel()
	text := readme(t)
	if n := strings.Count(text, "\n"); n > readmeLines {
		t.Errorf("it has %d lines, want %d at most", n, readmeLines)
	}
	for _, source := range []string{
		"License Keys Are Inventory",
		"Designing a Real-Time Inventory System for\nDigital-Goods Codes: Reserve, Allocate, Release",
		"Increddy key engine",
		"(https://agentwranglers.se/playbook/ecommerce/orders-and-fulfilment/licence-keys-once)", // its licence asks for it
		"CC BY 4.0",
	} {
		if !strings.Contains(text, source) {
			t.Errorf("it does not name %q", source)
		}
	}
	if strings.Count(text, "```")%2 != 0 {
		t.Error("a block is not closed")
	}
}

// TestReadmeTest holds that CI runs what the README says runs all tests.
func TestReadmeTest(t *testing.T) {
	t.Parallel()
	try, _, _ := shell(t)
	ci, err := os.ReadFile(filepath.Join(top, ".ci", "run"))
	if err != nil {
		t.Fatal(err)
	}
	commands := strings.Split(strings.TrimSpace(string(ci)), "\n")
	last := commands[len(commands)-1]
	if want := lastCommand(try); last != want {
		t.Errorf("CI ends with %q, the README says %q", last, want)
	}
	if _, err := os.Stat(filepath.Join(top, strings.TrimPrefix(last, "bash "))); err != nil {
		t.Error(err)
	}
}

func lastCommand(block string) string {
	lines := strings.Split(strings.TrimSpace(block), "\n")
	command, _, _ := strings.Cut(lines[len(lines)-1], "#")
	return strings.TrimSpace(command)
}

// TestReadmeDemo runs the demo as the README says, with no variable set that it could lean on, and compares what it prints
// with the README's excerpt. Numbers may differ.
func TestReadmeDemo(t *testing.T) {
	t.Parallel()
	try, _, _ := shell(t)
	command, _, _ := strings.Cut(try, "#")
	cmd := exec.CommandContext(t.Context(), "bash", "-c", command)
	cmd.Dir = top
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "KEYTILL_") || strings.HasPrefix(variable, "KEYTILL_PG_BIN=") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	printed := strings.Split(string(out), "\n")
	for i := range printed {
		printed[i] = withoutNumbers(printed[i])
	}
	for line := range strings.Lines(excerpt(t)) {
		if line = withoutNumbers(line); !slices.Contains(printed, line) {
			t.Errorf("the demo does not print %q. It prints:\n%s", line, out)
		}
	}
}

// excerpt is the README's part of what the demo prints.
func excerpt(t *testing.T) string { return blocks(t, "text", 2)[0] }

func withoutNumbers(line string) string {
	return strings.Join(strings.Fields(regexp.MustCompile(`[0-9]+`).ReplaceAllString(line, "0")), " ")
}

// TestReadmeDaemon runs the README's commands in their order, and posts an event to the daemon that they start.
func TestReadmeDaemon(t *testing.T) {
	t.Parallel()
	_, start, mind := shell(t)
	stripe := stripefake.Start(stripefake.Config{})
	t.Cleanup(stripe.Close)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "keys.txt"), "EDITOR-1\nEDITOR-2\n")
	env := append(os.Environ(),
		"PATH="+filepath.Dir(program(t))+string(os.PathListSeparator)+os.Getenv("PATH"),
		"KEYTILL_DATABASE_URL="+withoutSchema(t),
		"KEYTILL_STRIPE_API_KEY="+stripe.APIKey(),
		"KEYTILL_STRIPE_WEBHOOK_SECRETS="+strings.Join(stripe.Secrets(), ","),
		"KEYTILL_STRIPE_API_URL="+stripe.URL(),
		"KEYTILL_LISTEN=127.0.0.1:0")
	// What the README cannot know comes from here; the shell gives its place to the daemon, so that it can be told to stop.
	script := withoutPlaceholders(start)
	script = strings.Replace(script, "\nkeytill serve", "\nexec keytill serve", 1)
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = dir, env
	d := startDaemon(t, cmd)
	if err := sell(stripe, "cs_1", "price_editor*2@1900"); err != nil {
		t.Fatal(err)
	}
	deliver(t, stripe, d.url, "cs_1")

	mind = strings.ReplaceAll(mind, "cs_…", "cs_1")
	var out []byte
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", "export KEYTILL_KEYSET_FILE=keyset.json\n"+mind)
		cmd.Dir, cmd.Env = dir, env
		var err error
		if out, err = cmd.CombinedOutput(); err == nil && strings.Contains(string(out), "fulfilled") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if bytes.Contains(out, []byte("EDITOR-")) {
		t.Errorf("it shows a key nobody asked to reveal:\n%s", out)
	}
	d.signal(t, syscall.SIGTERM)
	if code := d.mustEnd(t, stopWithin); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// withoutPlaceholders drops the exports of what the environment has already.
func withoutPlaceholders(block string) string {
	return regexp.MustCompile(`(?m)^export .*….*\n`).ReplaceAllString(block, "")
}

// TestReadmeShop builds the README's storefront and sells two keys in it: one the webhook tells of, one whose buyer comes to
// the thank-you page first.
func TestReadmeShop(t *testing.T) {
	t.Parallel()
	stripe := stripefake.Start(stripefake.Config{})
	t.Cleanup(stripe.Close)
	address, keyset, listen := pgtest.NewURL(t), newKeyset(t), freeAddress(t)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "keys.txt"), "GAME-1\nGAME-2\n")
	env := working(address, keyset)
	for _, args := range [][]string{{"pool", "create", "game"}, {"pool", "map", "game", "--price", "price_game"}, {"import", "game", "keys.txt"}} {
		if got := run(t.Context(), env, dir, args...); got.code != 0 {
			t.Fatal(got.stderr)
		}
	}

	cmd := exec.Command(buildShop(t, shopHead+blocks(t, "go", 1)[0]))
	cmd.Env = append(os.Environ(), "DATABASE_URL="+address, "KEYSET="+keyset, "STRIPE_API_KEY="+stripe.APIKey(),
		"STRIPE_WEBHOOK_SECRETS="+strings.Join(stripe.Secrets(), ","), "STRIPE_API_URL="+stripe.URL(), "LISTEN="+listen)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop := func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			return err
		case <-time.After(stopWithin):
			_ = cmd.Process.Kill()
			return fmt.Errorf("still up %v after it was told to stop: %w", stopWithin, <-ended)
		}
	}
	url := "http://" + listen
	awaitBody(t, url+"/readyz", "ready")
	for _, session := range []string{"cs_1", "cs_2"} {
		if err := sell(stripe, session, "price_game*1@1000"); err != nil {
			t.Fatal(err)
		}
	}
	awaitBody(t, url+"/thanks?session_id=cs_1", "paid [GAME-1]")
	deliver(t, stripe, url+"/webhooks/stripe", "cs_2")
	awaitBody(t, url+"/thanks?session_id=cs_2", "paid [GAME-2]")
	time.Sleep(500 * time.Millisecond) // for the notices
	if err := stop(); err != nil {
		t.Errorf("%v\n%s", err, log.String())
	}
	for _, session := range []string{"cs_1", "cs_2"} {
		if !strings.Contains(log.String(), "fulfillment.completed: "+session) {
			t.Errorf("it was not told of %s. Its log:\n%s", session, log.String())
		}
	}
}

// shopHead is what a storefront has around the README's function.
const shopHead = `package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-chi/chi/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
	"github.com/keytill/keytill/migrations"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	must(err)
	must(migrations.Up(ctx, pool))
	keyset, err := inventory.ParseKeyset([]byte(os.Getenv("KEYSET")))
	must(err)
	must(sell(ctx, pool, keyset, &http.Server{Addr: os.Getenv("LISTEN")}))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

`

// buildShop builds the program in a place of this module that only the build sees.
func buildShop(t *testing.T, program string) string {
	t.Helper()
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	writeFile(t, source, program)
	root, err := filepath.Abs(top)
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, "cmd", "readme", "main.go"): source}})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "overlay.json"), string(overlay))
	binary := filepath.Join(dir, "shop")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, "./cmd/readme")
	cmd.Dir = top
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the README's program does not build: %v\n%s", err, out)
	}
	return binary
}

func sell(stripe *stripefake.Server, session, item string) error {
	items, err := stripefake.ParseItems(item)
	if err != nil {
		return err
	}
	return stripe.Session(session, items, nil)
}

func deliver(t *testing.T, stripe *stripefake.Server, url, session string) {
	t.Helper()
	event, err := stripe.Event("checkout.session.completed", session, stripefake.EventOptions{})
	if err != nil {
		t.Fatal(err)
	}
	status, body, err := stripe.Deliver(t.Context(), url, event)
	if err != nil || status != http.StatusOK {
		t.Fatalf("the event is answered %d %q (%v), want 200", status, body, err)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// awaitBody waits until a page says something.
func awaitBody(t *testing.T, url, want string) {
	t.Helper()
	var got string
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		resp, err := http.Get(url)
		if err != nil {
			got = err.Error()
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if got = strings.TrimSpace(string(body)); got == want {
			return
		}
	}
	t.Fatalf("%s says %q, want %q", url, got, want)
}
