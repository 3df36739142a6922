// Package markdown puts what a program has found out into a document.
package markdown

import (
	"fmt"
	"os"
	"strings"
)

// ReplaceSection puts text between two comments of a file that name the section.
// If they are not there, it returns an error and the file is as it was.
func ReplaceSection(file, section, text string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+section+" -->\n", "<!-- /"+section+" -->"
	head, rest, ok := strings.Cut(string(old), begin)
	_, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("%s: there is no %q and %q", file, begin, end)
	}
	return os.WriteFile(file, []byte(head+begin+text+end+tail), 0o644)
}
