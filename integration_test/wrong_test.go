package integration_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// A script that passes although a word of it is wrong tests nothing.
func TestEveryWrongLineFailsItsScript(t *testing.T) {
	t.Parallel()
	const right = `pool game keys=3 price=price_game
stripe session cs_1 price_game*1
event checkout.session.completed cs_1
settle
`
	const wrong = `nosuch
pool game keys=3 price=price_game
pool other keys=3 colour=red
pool other keys=1 merchant=nobody
pool other shortage=maybe
restock nosuch keys=1
restock game
restock game keys=game-0001
merchant acme
thankyou cs_9
for-each 0 settle
for-each 2 nosuch
for-each 2 at_once=2 order cs_$N refunded:1
for-each 2 stripe session cs_$N price_game*1
smtp sideways
reserve game*1
reserve game ref=cart-1
reserve nosuch*1 ref=cart-1
reserve game*1 ref=cart-1 want=sold_out
reserve game*9 ref=cart-2
reserve game*1 ref=cart-3 want=maybe
release ref=nosuch
stripe session cs_2 price_game
stripe session cs_2 price_game*1 nosuch.field=1 status
stripe nosuch
stripe set cs_9 status=open
stripe set cs_1
stripe refund re_1 pi_9 amount=all
stripe refund re_1 pi_1 amount=99999
stripe down 1 status=sometimes
stripe down
stripe held nothing
stripe let-go nothing
stripe called
stripe called min=1000
snapshot early cs_9
event checkout.session.completed cs_9
event checkout.session.completed @nothing
event checkout.session.completed cs_1 colour=red
event checkout.session.completed cs_1 secret=7
event checkout.session.completed cs_1 want=400
event checkout.session.completed cs_1 secret=wrong
post nosuch.json
post body.json want=200
clock 20m
clock -20m
clock
settle now
restart gently
! settle
order cs_1
order cs_1 fulfilled:1 colour=red
order cs_1 delivered:1
order cs_1 fulfilled:1 payment=rich
no order cs_1
no money cs_1
stock nosuch available:1
stock game sold:1
keys cs_1
same nothing cs_1
mail buyer@example.com
mail buyer@example.com 0 text
hook no.such 0
finding nosuch 0
invariants all
keytill nosuch
! keytill help
`
	lines := strings.Split(strings.TrimSpace(wrong), "\n")
	file := filepath.Join(t.TempDir(), "wrong.txtar")
	if err := os.WriteFile(file, []byte(quoteHashes(right+wrong+"-- body.json --\n{}\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &recorder{T: t}
	testscript.RunT(r, testscript.Params{Files: []string{file}, Setup: setUp, Cmds: bind(commands()), ContinueOnError: true})

	first := strings.Count(right, "\n") + 1
	for i, line := range lines {
		if !strings.Contains(r.log, fmt.Sprintf("FAIL: %s:%d: ", file, first+i)) {
			t.Errorf("%s: passed", line)
		}
	}
	for i := 1; i < first; i++ {
		if strings.Contains(r.log, fmt.Sprintf("FAIL: %s:%d: ", file, i)) {
			t.Errorf("line %d failed:\n%s", i, r.log)
		}
	}
}

// A recorder is a test that notes what a script says, and does not fail with it.
type recorder struct {
	*testing.T
	log string
}

// Run runs a script.
func (r *recorder) Run(_ string, f func(testscript.T)) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
}

// Parallel does nothing: the test itself is parallel.
func (r *recorder) Parallel() {}

// Verbose keeps every line of the log.
func (r *recorder) Verbose() bool { return true }

// Log notes.
func (r *recorder) Log(args ...any) { r.log += fmt.Sprintln(args...) }

// FailNow ends the script.
func (r *recorder) FailNow() { runtime.Goexit() }

// Fatal ends the script.
func (r *recorder) Fatal(args ...any) {
	r.Log(args...)
	r.FailNow()
}
