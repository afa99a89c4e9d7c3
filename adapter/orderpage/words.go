package orderpage

import (
	"fmt"
	"net/http"
	"strings"
)

// Words are the page's, in one language.
type Words struct {
	Lang, Title, Number, PlacedOn                       string
	ShowOne, ShowMany, Download, Copy, CopyAll, Copied  string
	Caution, OnlyInFile                                 string
	ready, waiting, suspended, revoked, unreleased      [2]string // of one, of more
	BadLinkTitle, BadLink, BusyTitle, Busy, NothingHere string
}

// The counted words, for the template.

// ReadyText says how many keys are there.
func (w Words) ReadyText(n int) string { return counted(w.ready, n) }

// WaitingText says how many are still to come.
func (w Words) WaitingText(n int) string { return counted(w.waiting, n) }

// SuspendedText says how many may not be used for now.
func (w Words) SuspendedText(n int) string { return counted(w.suspended, n) }

// RevokedText says how many were taken back.
func (w Words) RevokedText(n int) string { return counted(w.revoked, n) }

// UnreleasedText says how many come on a day.
func (w Words) UnreleasedText(n int, day string) string { return counted(w.unreleased, n) + " " + day }

func counted(forms [2]string, n int) string {
	if n == 1 {
		return forms[0]
	}
	return fmt.Sprintf(forms[1], n)
}

// languages has the words of every language, by its code.
func languages() map[string]Words {
	return map[string]Words{
		"en": {Lang: "en", Title: "Your order", Number: "Order", PlacedOn: "placed on",
			ShowOne: "Show my key", ShowMany: "Show my keys", Download: "Download as a file", Copy: "Copy", CopyAll: "Copy all", Copied: "Copied",
			Caution:      "Whoever sees a key can use it. Look around before you show them.",
			OnlyInFile:   "There are more keys than this page shows: the file has all of them.",
			ready:        [2]string{"1 key is ready", "%d keys are ready"},
			waiting:      [2]string{"1 key will follow as soon as it is in stock", "%d keys will follow as soon as they are in stock"},
			suspended:    [2]string{"1 key is on hold while the payment is checked", "%d keys are on hold while the payment is checked"},
			revoked:      [2]string{"1 key was taken back", "%d keys were taken back"},
			unreleased:   [2]string{"1 key is reserved for you until", "%d keys are reserved for you until"},
			BadLinkTitle: "This link does not work", BadLink: "It may be incomplete, or it has ended. The shop can send you a new one.",
			BusyTitle: "Please try again", Busy: "That was too often, or something is out of order. It works again in a minute.",
			NothingHere: "There is nothing here yet."},
		"de": {Lang: "de", Title: "Ihre Bestellung", Number: "Bestellung", PlacedOn: "vom",
			ShowOne: "Schlüssel anzeigen", ShowMany: "Schlüssel anzeigen", Download: "Als Datei laden", Copy: "Kopieren", CopyAll: "Alle kopieren", Copied: "Kopiert",
			Caution:      "Wer einen Schlüssel sieht, kann ihn benutzen. Schauen Sie sich um, bevor Sie ihn anzeigen.",
			OnlyInFile:   "Es sind mehr Schlüssel, als diese Seite zeigt: In der Datei stehen alle.",
			ready:        [2]string{"1 Schlüssel ist da", "%d Schlüssel sind da"},
			waiting:      [2]string{"1 Schlüssel folgt, sobald er vorrätig ist", "%d Schlüssel folgen, sobald sie vorrätig sind"},
			suspended:    [2]string{"1 Schlüssel ruht, solange die Zahlung geprüft wird", "%d Schlüssel ruhen, solange die Zahlung geprüft wird"},
			revoked:      [2]string{"1 Schlüssel wurde zurückgenommen", "%d Schlüssel wurden zurückgenommen"},
			unreleased:   [2]string{"1 Schlüssel liegt für Sie bereit, ab", "%d Schlüssel liegen für Sie bereit, ab"},
			BadLinkTitle: "Dieser Link funktioniert nicht", BadLink: "Er ist unvollständig oder abgelaufen. Der Shop kann Ihnen einen neuen schicken.",
			BusyTitle: "Bitte noch einmal versuchen", Busy: "Das war zu oft, oder etwas ist gestört. In einer Minute geht es wieder.",
			NothingHere: "Hier ist noch nichts."},
	}
}

// wordsOf are those of the order's locale; where there is none, of the first language that the browser asks for.
func wordsOf(locale string, r *http.Request) Words {
	if locale == "" || locale == "auto" {
		locale = r.Header.Get("Accept-Language")
	}
	known := languages()
	language, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(locale)), "-")
	language, _, _ = strings.Cut(language, ",")
	language, _, _ = strings.Cut(language, ";")
	if words, ok := known[language]; ok {
		return words
	}
	return known["en"]
}
