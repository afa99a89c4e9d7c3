// Command keytill hands a licence key to every paid order line of a Stripe storefront: the daemon and the operator's
// command line. `keytill help` says what it does.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/keytill/keytill/cmd/keytill/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := cli.Run(ctx, cli.Process{Args: os.Args[1:], Getenv: os.Getenv, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Now: time.Now})
	stop()
	os.Exit(code)
}
