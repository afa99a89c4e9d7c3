package integration_test

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/internal/pgserver"
	"github.com/keytill/keytill/internal/pgtest"
	"github.com/keytill/keytill/internal/stripefake"
	"github.com/keytill/keytill/inventory"
)

// BenchmarkStart starts `keytill serve`, as built, on a database that is there and up to date, with mail, hooks, API and
// console, and counts from the start of the process until /readyz says that it can record events. Beside it, turn by turn,
// the program starts, prints its help and ends, which is what no daemon can be quicker than.
func BenchmarkStart(b *testing.B) {
	starts := quick(5, 15)
	dir := b.TempDir()
	program := filepath.Join(dir, "keytill")
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", program, "github.com/keytill/keytill/cmd/keytill").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	env := startable(b, dir)
	var ready, help []float64
	for range starts + 1 {
		ready = append(ready, startToReady(b, program, env))
		help = append(help, float64(timed(b, exec.CommandContext(b.Context(), program, "help").Run).Microseconds())/1000)
	}
	ready, help = ready[1:], help[1:] // the first warms the system's caches
	b.Logf("ready after %.0f ms; help after %.0f ms", ready, help)
	b.ReportMetric(median(ready), "ms/start")
	b.ReportMetric(median(help), "ms/help")
	b.ReportMetric(0, "ns/op")
}

// startable makes a database with a shop's stock and history, and the environment of a daemon on it.
func startable(b *testing.B, dir string) []string {
	b.Helper()
	server := pgtest.Server(b, pgserver.Config{TempDir: os.TempDir()})
	db := pgtest.Pool(b, server.URL())
	fillShelf(b, db, benchService(b, db), "game", 1000, quick(10_000, 100_000))
	stripe := stripefake.Start(stripefake.Config{})
	b.Cleanup(stripe.Close)
	keyset, err := inventory.NewKeyset()
	if err != nil {
		b.Fatal(err)
	}
	text, err := keyset.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	_, line, err := access.New(access.Token{Name: "bench", Role: access.Admin})
	if err != nil {
		b.Fatal(err)
	}
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte(line+"\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	return []string{"KEYTILL_DATABASE_URL=" + server.URL(), "KEYTILL_STRIPE_API_KEY=" + stripe.APIKey(),
		"KEYTILL_STRIPE_WEBHOOK_SECRETS=" + strings.Join(stripe.Secrets(), ","), "KEYTILL_STRIPE_API_URL=" + stripe.URL(),
		"KEYTILL_KEYSET=" + string(text), "KEYTILL_TOKENS_FILE=" + tokens,
		"KEYTILL_PUBLIC_URL=http://127.0.0.1", "KEYTILL_SMTP_URL=smtp://127.0.0.1:1", "KEYTILL_MAIL_FROM=shop@example.com",
		"KEYTILL_HOOK_URL=http://127.0.0.1:1/", "KEYTILL_HOOK_SECRET=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}
}

// startToReady returns the milliseconds from the process's start until it is ready.
func startToReady(b *testing.B, program string, env []string) float64 {
	b.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()
	var log strings.Builder
	cmd := exec.CommandContext(b.Context(), program, "serve")
	cmd.Env = append(env, "KEYTILL_LISTEN="+address)
	cmd.Stderr = &log
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	client := http.Client{Timeout: time.Second}
	for {
		answer, err := client.Get("http://" + address + "/readyz")
		if err == nil {
			_ = answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				break
			}
		}
		select {
		case err := <-ended:
			b.Fatalf("keytill has ended: %v\n%s", err, log.String())
		case <-time.After(time.Millisecond):
		}
	}
	took := time.Since(begin)
	client.CloseIdleConnections()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		b.Fatal(err)
	}
	if err := <-ended; err != nil {
		b.Fatalf("keytill ended with %v\n%s", err, log.String())
	}
	return float64(took.Microseconds()) / 1000
}
