package markdown

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReplaceSection_ReplacesOnlyThat(t *testing.T) {
	file := filepath.Join(t.TempDir(), "doc.md")
	require.NoError(t, os.WriteFile(file, []byte("before\n<!-- a -->\nold\n<!-- /a -->\nafter\n"), 0o644))
	require.NoError(t, ReplaceSection(file, "a", "new\n"))
	doc, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "before\n<!-- a -->\nnew\n<!-- /a -->\nafter\n", string(doc))
}

func TestReplaceSection_RefusesADocumentWithoutAPlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "doc.md")
	require.NoError(t, os.WriteFile(file, []byte("<!-- a -->\nno end\n"), 0o644))
	require.ErrorContains(t, ReplaceSection(file, "a", "text"), "<!-- /a -->")
	doc, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, "<!-- a -->\nno end\n", string(doc))
}
