package ration_test

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ration-go/ration"
)

// The documents make claims about the code. These tests hold them to it.

var (
	citedTest    = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*`)
	citedAt      = regexp.MustCompile("\\[`?((?:Test|Fuzz)[A-Z]\\w*)`?\\]\\(([^)]+)\\)")
	relativeLink = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	contractRow  = regexp.MustCompile(`(?m)^\| ([A-Z]\d+) \| (.+) \| (.+) \|$`)
	codeSpan     = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	goBlock      = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
)

func TestDocs_ContractIsComplete(t *testing.T) {
	var want []string
	for _, group := range []struct {
		letter string
		size   int
	}{{"S", 12}, {"P", 11}, {"D", 5}, {"T", 6}} {
		for i := range group.size {
			want = append(want, fmt.Sprint(group.letter, i+1))
		}
	}

	var got []string
	for _, row := range contractRow.FindAllStringSubmatch(read(t, "docs/contract.md"), -1) {
		number, proof := row[1], row[3]
		got = append(got, number)
		if !strings.HasPrefix(proof, "not yet") {
			require.Regexp(t, citedTest, proof, "%s names no test and is not marked as not yet there", number)
		}
	}
	require.Equal(t, want, got)
}

func TestDocs_CitedTestsExist(t *testing.T) {
	declared := declaredTests(t)
	var missing []string
	eachFile(t, ".md", func(name, text string) {
		for _, test := range citedTest.FindAllString(text, -1) {
			if declared[test] == nil {
				missing = append(missing, name+": "+test)
			}
		}
		for _, cited := range citedAt.FindAllStringSubmatch(text, -1) {
			test, file := cited[1], path.Join(path.Dir(name), cited[2])
			if !slices.Contains(declared[test], file) {
				missing = append(missing, name+": "+test+" in "+file)
			}
		}
	})
	require.Empty(t, missing, "cited, but not there:\n%s", strings.Join(missing, "\n"))
}

func TestDocs_LinkedFilesExist(t *testing.T) {
	eachFile(t, ".md", func(name, text string) {
		for _, link := range relativeLink.FindAllStringSubmatch(codeSpan.ReplaceAllString(text, ""), -1) {
			_, err := os.Stat(filepath.Join(filepath.Dir(name), link[1]))
			require.NoError(t, err, "linked in %s", name)
		}
	})
}

// A block must stand, word for word but for its indentation, in a file of
// examples that go test compiles, runs and compares with their output.
func TestDocs_ReadmeCodeRuns(t *testing.T) {
	files, err := filepath.Glob("*example*_test.go")
	require.NoError(t, err)
	debugging, err := filepath.Glob("debug/example*_test.go")
	require.NoError(t, err)
	files = append(files, debugging...)
	var code []string
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		require.NoError(t, err)
		for _, example := range doc.Examples(file) {
			require.True(t, example.Output != "" || example.EmptyOutput,
				"%s: Example%s has no output to compare, so it does not run", name, example.Name)
		}
		code = append(code, withoutIndent(read(t, name)))
	}

	blocks := goBlock.FindAllStringSubmatch(read(t, "README.md"), -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		require.Contains(t, strings.Join(code, "\n"), withoutIndent(block[1]))
	}
}

func TestDocs_ReadmeListsEveryOption(t *testing.T) {
	readme := read(t, "README.md")
	for _, options := range []reflect.Type{
		reflect.TypeFor[ration.PoolOptions[int]](),
		reflect.TypeFor[ration.SemaphoreOptions](),
		reflect.TypeFor[ration.DetectorOptions](),
	} {
		for _, field := range reflect.VisibleFields(options) {
			require.Regexp(t, "(?m)^\\| .*`"+field.Name+"`.* \\|$", readme, "an option of %v", options)
		}
	}
}

func withoutIndent(code string) string {
	return regexp.MustCompile(`(?m)^[\t ]+`).ReplaceAllString(code, "")
}

// declaredTests maps every test and fuzz target to the files that declare it.
func declaredTests(t *testing.T) map[string][]string {
	declared := make(map[string][]string)
	eachFile(t, "_test.go", func(name, text string) {
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil {
				declared[fn.Name.Name] = append(declared[fn.Name.Name], name)
			}
		}
	})
	return declared
}

// eachFile passes every file of the repository whose name ends like this, by
// its slash-separated path from the root.
func eachFile(t *testing.T, suffix string, fn func(name, text string)) {
	found := false
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name != "." && strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata"):
			return fs.SkipDir
		case !entry.IsDir() && strings.HasSuffix(name, suffix):
			found = true
			fn(name, read(t, name))
		}
		return nil
	})
	require.NoError(t, err)
	require.True(t, found, "no %s file found", suffix)
}

func read(t *testing.T, name string) string {
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

// Every exported type has an example that runs and is compared with its output,
// and every exported name has a comment that begins with it.
func TestDocs_EveryTypeHasAnExampleAndEveryNameAComment(t *testing.T) {
	for _, dir := range []string{".", "debug", "leasepprof", "expvarration"} {
		sources, err := filepath.Glob(dir + "/*.go")
		require.NoError(t, err)
		fset := token.NewFileSet()
		var code, tests []*ast.File
		for _, name := range sources {
			file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
			require.NoError(t, err)
			if strings.HasSuffix(name, "_test.go") {
				tests = append(tests, file)
			} else {
				code = append(code, file)
			}
		}
		pkg, err := doc.NewFromFiles(fset, code, "p")
		require.NoError(t, err)
		shown := make(map[string]bool)
		for _, e := range doc.Examples(tests...) {
			if e.Output != "" {
				name, _, _ := strings.Cut(e.Name, "_")
				shown[name] = true
			}
		}
		documented := func(name, comment string) {
			if ast.IsExported(name) {
				require.NotEmpty(t, strings.TrimSpace(comment), "%s: %s", dir, name)
			}
		}
		functions := func(of string, fs []*doc.Func) {
			for _, f := range fs {
				documented(of+f.Name, f.Doc)
			}
		}
		require.NotEmpty(t, pkg.Types)
		for _, typ := range pkg.Types {
			require.True(t, shown[typ.Name], "%s: no example of %s", dir, typ.Name)
			documented(typ.Name, typ.Doc)
			functions("", typ.Funcs)
			functions(typ.Name+".", typ.Methods)
			for _, v := range slices.Concat(typ.Consts, typ.Vars) {
				documented(v.Names[0], v.Doc)
			}
		}
		functions("", pkg.Funcs)
	}
}
