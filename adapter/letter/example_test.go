package letter_test

import (
	"fmt"
	"testing/fstest"

	"github.com/keytill/keytill/adapter/letter"
)

// A merchant's own French templates beside the English and German ones that are built in.
func ExampleSet_Write() {
	letters, err := letter.Load(fstest.MapFS{
		"fr.txt":  {Data: []byte("{{define \"subject\"}}Votre clé{{end}}{{range .Products}}{{.Name}} : {{range .Keys}}{{.}}{{end}}\n{{end}}")},
		"fr.html": {Data: []byte("{{range .Products}}<p>{{.Name}}: {{range .Keys}}{{.}}{{end}}</p>{{end}}")},
	})
	if err != nil {
		panic(err)
	}
	content := letter.Content{Shop: "Nebula Shop", Order: "cs_1", Count: 1,
		Products: []letter.Product{{Name: "Éditeur <3>", SKU: "editor", Count: 1, Keys: []string{"ABCD-1234"}}}}
	for _, locale := range []string{"fr-CA", "de", "ja"} {
		l, err := letters.Write(locale, content)
		if err != nil {
			panic(err)
		}
		fmt.Println(l.Language, l.Subject)
		if l.Language == "fr" {
			fmt.Print(l.Text)
			fmt.Println(l.HTML)
		}
	}
	// Output:
	// fr Votre clé
	// Éditeur <3> : ABCD-1234
	// <p>Éditeur &lt;3&gt;: ABCD-1234</p>
	// de Ihr Schlüssel für Éditeur <3>
	// en Your key for Éditeur <3>
}
