package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func (c *command) doctor() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Say what is wrong, and what to do",
		Long: "Checks the configuration, the database and its schema, the keyset, and the webhook endpoint at Stripe; holds keytill's\n" +
			"promises against every row: no key is live for two units and no unit has two, every due unit is fulfilled or waits in\n" +
			"a pool without stock, counts equal the rows, and a key's movements give its state; and looks for work that is stuck.\n" +
			"It only reads.\n\n" +
			"A line that begins with ok is as it should be, note is for your eyes, WRONG is to be mended. Exit 1 if anything is WRONG.",
		Example: "  keytill doctor\n  keytill doctor --json | jq '.checks[] | select(.status == \"wrong\")'",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			x := &examination{command: c}
			if err := x.run(cmd.Context()); err != nil {
				return err
			}
			if err := c.show(x.result(), x.print); err != nil {
				return err
			}
			if !x.ok() {
				return errReported
			}
			return nil
		},
	}
}

// A check is one line of what doctor says.
type check struct {
	Name   string      `json:"check"`
	Status checkStatus `json:"status"`
	Detail string      `json:"detail"`
	Do     string      `json:"do,omitempty"` // what to do about it
}

type checkStatus string

const (
	isOK    checkStatus = "ok"
	isNote  checkStatus = "note"  // worth knowing
	isWrong checkStatus = "wrong" // to be mended
)

// diagnosis is what doctor prints as JSON.
type diagnosis struct {
	OK       bool     `json:"ok"`
	Breaches []string `json:"breaches"` // of the promises
	Checks   []check  `json:"checks"`
}

// examination is one run of doctor.
type examination struct {
	*command
	checks   []check
	breaches []string
}

func (x *examination) good(name, format string, args ...any) {
	x.checks = append(x.checks, check{Name: name, Status: isOK, Detail: fmt.Sprintf(format, args...)})
}

func (x *examination) note(name, detail, do string) {
	x.checks = append(x.checks, check{Name: name, Status: isNote, Detail: detail, Do: do})
}

func (x *examination) wrong(name, detail, do string) {
	x.checks = append(x.checks, check{Name: name, Status: isWrong, Detail: detail, Do: do})
}

func (x *examination) ok() bool {
	for _, c := range x.checks {
		if c.Status == isWrong {
			return false
		}
	}
	return true
}

func (x *examination) result() diagnosis {
	return diagnosis{OK: x.ok(), Breaches: append([]string{}, x.breaches...), Checks: x.checks}
}

var marks = map[checkStatus]string{isOK: "ok   ", isNote: "note ", isWrong: "WRONG"}

func (x *examination) print(w io.Writer) {
	for _, c := range x.checks {
		fmt.Fprintf(w, "%s %s: %s\n", marks[c.Status], c.Name, c.Detail)
		if c.Do != "" {
			fmt.Fprintf(w, "        %s\n", c.Do)
		}
	}
}

// run makes all checks, as far as the ones before let it: without a database there is nothing more to see.
func (x *examination) run(ctx context.Context) error {
	x.checkConfiguration()
	logger, err := x.logger()
	if err != nil {
		return err
	}
	db, err := x.openDatabase(ctx, logger)
	if err != nil {
		x.wrong("database", oneLine(err), nothingElse)
		return ctx.Err()
	}
	defer db.close()
	x.checkDatabase(ctx, db)
	x.checkWay(db)
	if err := x.prepareSchema(ctx, db); err != nil {
		x.wrong("schema", oneLine(err), nothingElse)
		return ctx.Err()
	}
	x.good("schema", "it is this version's")
	x.checkKeyset(ctx, db)
	x.checkEndpoint(ctx, db)
	for _, examine := range []func(context.Context, *database) error{x.checkPromises, x.checkStuck, x.checkSweeps} {
		if err := examine(ctx, db); err != nil {
			return err
		}
	}
	return nil
}

const nothingElse = "when it is mended, run doctor again: nothing else could be looked at"
