package cli

import (
	"errors"

	"github.com/spf13/cobra"
)

func (c *command) demo() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "See it work, with nothing set up",
		Args:  args(),
		RunE: func(*cobra.Command, []string) error {
			return errors.New("not yet")
		},
	}
}
