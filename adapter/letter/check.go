package letter

import (
	"errors"
	"fmt"
	"strings"
)

// samples are the kinds of order that every template must be able to write about.
var samples = []Content{
	{Shop: "Sample Shop", Order: "cs_sample", Link: "https://shop.example.com/orders/sample", Count: 1,
		Products: []Product{{Name: "Sample One", SKU: "one", Count: 1, Keys: []string{"SAMPLE-KEY-1"}}}},
	{Order: "pi_sample", Count: 3, Waiting: 1, Products: []Product{
		{Name: "Sample One", SKU: "one", Count: 1, Keys: []string{"SAMPLE-KEY-1"}},
		{Name: "Sample Two", SKU: "two", Count: 2, Keys: []string{"SAMPLE-KEY-2", "SAMPLE-KEY-3"}}}},
	{Shop: "Sample Shop", Order: "cs_sample", Link: "https://shop.example.com/orders/sample", Count: 500, Waiting: 20, Attached: true,
		Products: []Product{{Name: "Sample One", SKU: "one", Count: 300}, {Name: "Sample Two", SKU: "two", Count: 200}}},
	{Order: "cs_sample", Count: 21, Attached: true, Products: []Product{{Name: "Sample One", SKU: "one", Count: 21}}},
}

// check writes every sample and looks for what a buyer must find in it.
func (p *pair) check(language string) error {
	switch {
	case p.text == nil:
		return fmt.Errorf("there is %s.html and no %s.txt: a language needs both", language, language)
	case p.html == nil:
		return fmt.Errorf("there is %s.txt and no %s.html: a language needs both", language, language)
	case p.text.Lookup(subject) == nil:
		return fmt.Errorf(`%s: it has no {{define "subject"}}…{{end}}`, p.text.Name())
	}
	for _, c := range samples {
		l, err := p.write(c)
		if err != nil {
			return errors.Unwrap(err) // which names file and line
		}
		if l.Subject == "" {
			return fmt.Errorf("%s: the subject is empty", p.text.Name())
		}
		for name, body := range map[string]string{p.text.Name(): l.Text, p.html.Name(): l.HTML} {
			for _, product := range c.Products {
				for _, key := range product.Keys {
					if !strings.Contains(body, key) {
						return fmt.Errorf("%s: not every key is in it: it must print all .Keys of all .Products", name)
					}
				}
			}
		}
	}
	return nil
}
