package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/keytill/keytill/fulfillment"
	"github.com/keytill/keytill/inventory"
)

func (c *command) keyset() *cobra.Command {
	return group("keyset", "Make and rotate the keysets that encrypt keys", c.keysetNew(), c.keysetRotate())
}

func (c *command) keysetNew() *cobra.Command {
	return &cobra.Command{
		Use:   "new",
		Short: "Print a new keyset",
		Long: "Prints a new keyset. Who has it reads every key of the database, and without it nobody does: keep a copy, apart\n" +
			"from the database's backups.",
		Example: "  keytill keyset new > keyset.json && export KEYTILL_KEYSET_FILE=keyset.json",
		Args:    args(),
		RunE: func(*cobra.Command, []string) error {
			keyset, err := inventory.NewKeyset()
			if err != nil {
				return err
			}
			return c.printKeyset(keyset)
		},
	}
}

func (c *command) printKeyset(keyset *inventory.Keyset) error {
	text, err := keyset.Marshal()
	if err != nil {
		return err
	}
	fmt.Fprintf(c.Stdout, "%s\n", text)
	return nil
}

func (c *command) keysetRotate() *cobra.Command {
	var add, promote, drop bool
	cmd := &cobra.Command{
		Use:   "rotate [--add | --promote | --drop]",
		Short: "Encrypt all keys anew with a new key, while the shop is open",
		Long: "Rotates the keyset: a new key becomes the primary one, every key of the database is encrypted anew with it and gets\n" +
			"a new fingerprint, and the old key is dropped. Sales and imports go on. What is killed goes on with the next run.\n\n" +
			"With the embedded database, and no daemon on it, `keytill keyset rotate` does all of it.\n\n" +
			"Else the keyset is in your hands, and daemons that run hold copies of it, so it goes in steps. Each step prints the\n" +
			"next keyset; give it to every daemon and restart them all before the next step:\n\n" +
			"  1. keytill keyset rotate --add > 1.json\n     the new key is there, to decrypt with; the old one still encrypts\n" +
			"  2. keytill keyset rotate --promote > 2.json\n     the new key encrypts\n" +
			"  3. keytill keyset rotate\n     the database's keys are encrypted anew; run it with 2.json\n" +
			"  4. keytill keyset rotate --drop > 3.json\n     the old key is gone; refused while anything needs it\n\n" +
			"Keep the old keyset for as long as you keep backups of the database from before. Dropping it also ends the links to\n" +
			"order pages that were sent before step 2.",
		Example: "  keytill keyset rotate\n  keytill keyset rotate --add > 1.json\n  keytill keyset rotate --promote > 2.json\n  keytill keyset rotate --drop > 3.json",
		Args:    args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			steps := 0
			for _, step := range []bool{add, promote, drop} {
				if step {
					steps++
				}
			}
			if steps > 1 {
				return usage("one step at a time: --add, --promote or --drop")
			}
			switch ctx := cmd.Context(); {
			case add:
				return c.changeKeyset(ctx, (*inventory.Keyset).WithNewKeys)
			case promote:
				return c.changeKeyset(ctx, (*inventory.Keyset).Promoted)
			case drop:
				return c.with(ctx, c.dropOldKeys)
			default:
				return c.with(ctx, c.rotateKeyset)
			}
		},
	}
	cmd.Flags().BoolVar(&add, "add", false, "step 1: add a new key to the keyset")
	cmd.Flags().BoolVar(&promote, "promote", false, "step 2: make it the primary one")
	cmd.Flags().BoolVar(&drop, "drop", false, "step 4: drop the old key")
	return cmd
}

// ownsKeyset reports whether the keyset is the embedded database's, which keytill keeps itself.
func (c *command) ownsKeyset() bool {
	return c.settings.keyset == "" && c.settings.keysetFile == "" && c.settings.databaseURL == ""
}

func (c *command) ownKeysetFile() string {
	return filepath.Join(c.path(c.settings.dataDir), keysetFileName)
}

// changeKeyset is a step that needs no database.
func (c *command) changeKeyset(ctx context.Context, change func(*inventory.Keyset) (*inventory.Keyset, error)) error {
	keyset, err := c.loadKeyset(ctx)
	if err != nil {
		return err
	}
	next, err := change(keyset)
	if err != nil {
		return err
	}
	return c.handOver(next)
}

// handOver gives a changed keyset to its owner: into keytill's own file, or to whoever keeps it.
func (c *command) handOver(keyset *inventory.Keyset) error {
	if !c.ownsKeyset() {
		return c.printKeyset(keyset)
	}
	if err := replaceKeyset(c.ownKeysetFile(), keyset); err != nil {
		return err
	}
	return c.show(map[string]any{"file": c.ownKeysetFile()}, func(w io.Writer) {
		fmt.Fprintf(w, "%s is changed. A daemon that runs on it must be restarted now.\n", c.ownKeysetFile())
	})
}

func (c *command) dropOldKeys(ctx context.Context, op *operator) error {
	if err := op.keyset.Unused(ctx, op.pool); err != nil {
		return err
	}
	next, err := op.keyset.WithoutOldKeys()
	if err != nil {
		return err
	}
	return c.handOver(next)
}

// rotateKeyset encrypts the database anew, and where the keyset is keytill's own it does the steps before and after too.
func (c *command) rotateKeyset(ctx context.Context, op *operator) error {
	keyset := op.keyset
	own := c.ownsKeyset()
	var err error
	switch {
	case own && op.server == nil:
		return errors.New("a keytill runs on this data directory and holds its keyset: stop it first, or rotate with --add, --promote, no flag, and --drop, with a restart after each")
	case own:
		if keyset, err = c.beginRotation(keyset); err != nil {
			return err
		}
	case !keyset.IsRotating():
		return inventory.ErrNotRotating
	}
	bar := newRotationBar(c.Stderr, isTerminal(c.Stderr))
	rotated, err := keyset.Rotate(ctx, op.pool, bar.tell)
	bar.end()
	if err != nil {
		return err
	}
	act := fulfillment.Act{At: c.Now(), Actor: actor(), Action: "rotate keyset", Subject: plural(rotated, "key") + " encrypted anew"}
	if err := fulfillment.Record(ctx, op.pool, op.merchant, act); err != nil {
		return err
	}
	if own {
		if err := c.endRotation(ctx, op, keyset); err != nil {
			return err
		}
	}
	return c.show(map[string]any{"rotated": rotated, "dropped": own}, func(w io.Writer) {
		fmt.Fprintf(w, "%s encrypted anew.\n", plural(rotated, "key"))
		if own {
			fmt.Fprintf(w, "The old key is dropped. Keep a copy of %s, apart from the database's backups.\n", c.ownKeysetFile())
		} else {
			fmt.Fprintln(w, "Next: `keytill keyset rotate --drop` prints the keyset without the old key.")
		}
	})
}

// beginRotation has a new primary key, on the disk before anything is encrypted with it. One that a rotation which was
// stopped has left is used.
func (c *command) beginRotation(keyset *inventory.Keyset) (next *inventory.Keyset, err error) {
	next = keyset
	if !next.IsRotating() {
		if next, err = next.WithNewKeys(); err != nil {
			return nil, err
		}
	}
	if !next.IsPromoted() {
		if next, err = next.Promoted(); err != nil {
			return nil, err
		}
	}
	return next, replaceKeyset(c.ownKeysetFile(), next)
}

func (c *command) endRotation(ctx context.Context, op *operator, keyset *inventory.Keyset) error {
	if err := keyset.Unused(ctx, op.pool); err != nil {
		return err
	}
	next, err := keyset.WithoutOldKeys()
	if err != nil {
		return err
	}
	return replaceKeyset(c.ownKeysetFile(), next)
}
