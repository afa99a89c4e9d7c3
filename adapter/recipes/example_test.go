package recipes_test

import (
	"errors"
	"fmt"

	"github.com/keytill/keytill/adapter/recipes"
)

func ExampleFind() {
	recipe, err := recipes.Find("restore")
	fmt.Println(recipe.Title, err)
	_, err = recipes.Find("soup")
	fmt.Println(errors.Is(err, recipes.ErrNone))
	// Output:
	// Restore from a backup <nil>
	// true
}
