package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/keytill/keytill/adapter"
	"github.com/keytill/keytill/adapter/access"
	"github.com/keytill/keytill/adapter/orderpage"
	"github.com/keytill/keytill/fulfillment"
)

func (c *command) token() *cobra.Command {
	var token access.Token
	var role string
	cmd := &cobra.Command{
		Use:   "new --role R --name X",
		Short: "Make an access token and print it once",
		Long: "Makes an access token for the API and the console. It is printed once, with the line of the tokens file that lets\n" +
			"it in: that line holds the token hashed. The file is read when the daemon starts.\n\n" +
			"Roles: viewer looks at orders and stock; support also sends again, reveals, revokes and replaces; admin may do\n" +
			"everything; storefront is for a shop's server; verify asks whether keys may be used.",
		Example: "  keytill token new --role verify --name licence-server\n  keytill token new --role support --name jane --json > token.json",
		Args:    args(),
		RunE: func(*cobra.Command, []string) error {
			if role == "" || token.Name == "" {
				return usage("say whose token it is and what it may do: --name X --role %s", access.Roles)
			}
			token.Role, token.Merchant = access.Role(role), c.settings.merchant
			text, line, err := access.New(token)
			if err != nil {
				return usage("%v", err)
			}
			return c.show(map[string]string{"token": text, "line": line}, func(w io.Writer) {
				fmt.Fprintf(w, "Token, shown this once:\n\n  %s\n\nLine for the file that KEYTILL_TOKENS_FILE names:\n\n  %s\n", text, line)
			})
		},
	}
	cmd.Flags().StringVar(&role, "role", "", "what it may do: viewer, `support`, admin, storefront or verify")
	cmd.Flags().StringVar(&token.Name, "name", "", "whose it is, for audit and log: `jane`, licence-server")
	return group("token", "Access tokens of the API and the console", cmd)
}

// readTokens reads the tokens file; nil where none is set.
func (c *command) readTokens() (*access.Tokens, error) {
	if c.settings.tokensFile == "" {
		return nil, nil
	}
	file, err := os.Open(c.path(c.settings.tokensFile))
	if err != nil {
		return nil, fmt.Errorf("open the access tokens: %w; check KEYTILL_TOKENS_FILE", err)
	}
	defer file.Close()
	tokens, err := access.Read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.settings.tokensFile, err)
	}
	return tokens, nil
}

func (c *command) hooks() *cobra.Command {
	return group("hooks", "Signed notices to the storefront", &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of what is posted",
		Example: "  keytill hooks schema > notice.schema.json",
		Args:    args(),
		RunE: func(*cobra.Command, []string) error {
			_, err := c.Stdout.Write(adapter.NoticeSchema())
			return err
		},
	})
}

func (c *command) orderLink() *cobra.Command {
	var (
		end    bool
		reason string
	)
	cmd := &cobra.Command{
		Use:   "link ID",
		Short: "Print a link to the buyer's page, or end all that were given out",
		Long: "Prints a new link to the page on which the buyer sees the order and its keys. Who has the link has the keys. With\n" +
			"--end, all links to the page that were given out so far end, those in mails too. The audit notes either.",
		Example: "  keytill order link cs_live_a1 --reason 'ticket 12'\n  keytill order link cs_live_a1 --end --reason 'posted in a forum'",
		Args:    args("an id of the order's payment"),
		RunE: func(cmd *cobra.Command, given []string) error {
			if reason == "" {
				return usage("say why: --reason 'ticket 12'. The audit keeps it")
			}
			return c.with(cmd.Context(), func(ctx context.Context, op *operator) error {
				who := fulfillment.Person{Name: actor(), Reason: reason}
				if !end {
					return c.printLink(ctx, op, given[0], who)
				}
				if err := op.service.EndLinks(ctx, op.merchant, given[0], who); err != nil {
					return err
				}
				return c.show(map[string]any{"order": given[0], "ended": true}, func(w io.Writer) {
					fmt.Fprintf(w, "All links to the page of %s have ended.\n", given[0])
				})
			})
		},
	}
	cmd.Flags().BoolVar(&end, "end", false, "end all links that were given out so far")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the audit: `'ticket 12'`")
	return cmd
}

func (c *command) printLink(ctx context.Context, op *operator, query string, who fulfillment.Person) error {
	if c.settings.publicURL == "" {
		return errors.New("there are no buyers' pages without a public URL: set KEYTILL_PUBLIC_URL as the daemon has it")
	}
	links, err := adapter.NewLinks(c.settings.publicURL, op.keyset, c.Now)
	if err != nil {
		return err
	}
	order, err := op.service.RevealLink(ctx, op.merchant, query, who)
	if err != nil {
		return err
	}
	url := links.URL(orderpage.Ref{Merchant: op.merchant, Order: order.ID, Serial: order.LinkSerial}, c.Now())
	return c.show(map[string]any{"order": order.ID, "url": url}, func(w io.Writer) { fmt.Fprintln(w, url) })
}

// mailTemplates is the directory of the merchant's own templates; nil where none is set.
func (c *command) mailTemplates() fs.FS {
	if c.settings.mailTemplates == "" {
		return nil
	}
	return os.DirFS(c.path(c.settings.mailTemplates))
}

// withKeys reads the setting of the same name.
func (c *command) withKeys() (bool, error) {
	yes, err := strconv.ParseBool(c.settings.hookWithKeys)
	if err != nil {
		return false, usage("KEYTILL_HOOK_WITH_KEYS is true or false, not %q", c.settings.hookWithKeys)
	}
	return yes, nil
}
