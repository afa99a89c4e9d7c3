package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// maxKeyText is far more than any key has.
const maxKeyText = 64 << 10

func (c *command) verify() *cobra.Command {
	var sku string
	cmd := &cobra.Command{
		Use:   "verify KEY",
		Short: "Say whether a key may be used",
		Long: "Says of a key, by its text, whether its owner may use it: valid, suspended, revoked, expired, unsold (in stock) or\n" +
			"unknown. KEY - is standard input, which leaves nothing in the shell's history.",
		Example: "  keytill key verify ABCD-1234\n  keytill key verify - --sku editor < key.txt",
		Args:    args("a KEY"),
		RunE: func(cmd *cobra.Command, given []string) error {
			text := given[0]
			if text == "-" {
				read, err := io.ReadAll(io.LimitReader(c.Stdin, maxKeyText))
				if err != nil {
					return fmt.Errorf("read the key: %w", err)
				}
				text = strings.TrimRight(string(read), "\r\n")
			}
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error {
				found, err := op.keyset.Verify(ctx, op.pool, op.merchant, text, sku)
				if err != nil {
					return err
				}
				return c.show(found, func(w io.Writer) {
					fmt.Fprintln(w, strings.TrimSpace(strings.Join([]string{string(found.Verdict), found.SKU, found.Key}, "  ")))
				})
			})
		},
	}
	cmd.Flags().StringVar(&sku, "sku", "", "look in this pool alone: `editor`")
	return cmd
}
