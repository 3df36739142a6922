package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A dashboard is what the tests want to know of Grafana's.
type dashboard struct {
	Title      string
	Templating struct {
		List []struct {
			Name, Type, Definition string
		}
	}
	Panels []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ H, W, X, Y int }
		Targets []struct{ RefID, Expr, LegendFormat string }
	}
}

func readDashboard(t *testing.T) dashboard {
	text, err := os.ReadFile("grafana.json")
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

// exprs returns the expressions of all panels.
func (d dashboard) exprs() (all []string) {
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	return all
}

func TestDashboard_ShowsOnlyWhatIsExported(t *testing.T) {
	_, metrics, _ := leaking(t)
	d := readDashboard(t)
	exprs := d.exprs()
	require.Greater(t, len(exprs), 30)
	for _, v := range d.Templating.List {
		if v.Type == "query" {
			exprs = append(exprs, v.Definition)
		}
	}
	for _, expr := range exprs {
		require.NoError(t, exported(metrics, expr), expr)
	}
}

// Whatever is exported, somebody should look at.
func TestDashboard_ShowsAllThatIsExported(t *testing.T) {
	_, metrics, _ := leaking(t)
	shown := strings.Join(readDashboard(t).exprs(), "\n")
	for _, family := range regexp.MustCompile(`(?m)^# TYPE (ration_pool_\w+)`).FindAllStringSubmatch(metrics, -1) {
		require.Contains(t, shown, family[1])
	}
}

func TestDashboard_LegendsNameLabelsThatThereAre(t *testing.T) {
	_, metrics, _ := leaking(t)
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			name := metricName.FindString(target.Expr)
			for _, label := range regexp.MustCompile(`{{(\w+)}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
				require.Regexp(t, `(?m)^`+name+`{[^}]*\b`+label[1]+`="`, metrics, "%s: %s", p.Title, target.LegendFormat)
			}
		}
	}
}

func TestDashboard_PanelsDoNotOverlap(t *testing.T) {
	d := readDashboard(t)
	ids := make(map[int]bool)
	for i, p := range d.Panels {
		require.False(t, ids[p.ID], "two panels %d", p.ID)
		ids[p.ID] = true
		at := p.GridPos
		require.LessOrEqual(t, at.X+at.W, 24, p.Title)
		for _, q := range d.Panels[i+1:] {
			with := q.GridPos
			require.False(t, at.X < with.X+with.W && with.X < at.X+at.W && at.Y < with.Y+with.H && with.Y < at.Y+at.H,
				"%s overlaps %s", p.Title, q.Title)
		}
	}
}

func TestDashboard_ExpressionsAreValid(t *testing.T) {
	var rules bytes.Buffer
	fmt.Fprintln(&rules, "groups:\n- name: panels\n  rules:")
	replace := strings.NewReplacer("$__rate_interval", "1m", "$pool", ".+")
	for i, expr := range readDashboard(t).exprs() {
		quoted, err := json.Marshal(replace.Replace(expr)) // is YAML too
		require.NoError(t, err)
		fmt.Fprintf(&rules, "  - record: panel%d\n    expr: %s\n", i, quoted)
	}
	path := filepath.Join(t.TempDir(), "panels.yml")
	require.NoError(t, os.WriteFile(path, rules.Bytes(), 0o600))
	out, err := promtool("check", "rules", path)
	require.NoError(t, err, out)
}

func TestRules_DoWhatTheirTestsSay(t *testing.T) {
	out, err := promtool("check", "rules", "ration.rules.yml")
	require.NoError(t, err, out)
	out, err = promtool("test", "rules", "ration.rules.test.yml")
	require.NoError(t, err, out)
}

// Rules that are not those tested must not pass their tests.
func TestRules_TestsNoticeOtherRules(t *testing.T) {
	rules, err := os.ReadFile("ration.rules.yml")
	require.NoError(t, err)
	tests, err := os.ReadFile("ration.rules.test.yml")
	require.NoError(t, err)
	for _, change := range []struct{ from, to string }{
		{"ration_pool_suspects > 0", "ration_pool_suspects > 2"},
		{"ration_pool_suspects > 0", "ration_pool_suspects >= 0"},
		{"for: 1m", "for: 30s"},
		{"for: 1m", "for: 2m"},
		{`{kind="proved"}`, ""},
		{"ration_pool_available <= 0", "ration_pool_available == 0"},
		{"ration_pool_waiters > 0 and", "ration_pool_waiters >= 0 and"},
		{"timeout|queue_full|error", "timeout|queue_full|error|canceled"},
		{"timeout|queue_full|error", "timeout|error"},
		{"> 0.01", "> 0.001"},
	} {
		changed := strings.Replace(string(rules), change.from, change.to, 1)
		require.NotEqual(t, string(rules), changed, change.from)
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "ration.rules.yml"), []byte(changed), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "ration.rules.test.yml"), tests, 0o600))
		out, err := promtool("test", "rules", filepath.Join(dir, "ration.rules.test.yml"))
		var failed *exec.ExitError
		require.ErrorAs(t, err, &failed, "%s -> %s: %s", change.from, change.to, out)
		require.Contains(t, out, "FAILED", change.from)
	}
}

func TestRules_AskOnlyForWhatIsExported(t *testing.T) {
	_, metrics, _ := leaking(t)
	rules, err := os.ReadFile("ration.rules.yml")
	require.NoError(t, err)
	text := regexp.MustCompile(`(?m)^ *#.*$`).ReplaceAllString(string(rules), "")
	require.NoError(t, exported(metrics, text))
}

func TestExported_NoticesWhatIsNot(t *testing.T) {
	const metrics = `# TYPE ration_pool_idle gauge
ration_pool_idle{kind="a",pool="mail"} 1
# TYPE ration_pool_held_seconds histogram
ration_pool_held_seconds_bucket{pool="mail",le="1"} 1
`
	for _, there := range []string{"ration_pool_idle", `rate(ration_pool_held_seconds_bucket{pool=~"$pool"}[5m])`,
		`ration_pool_idle{kind="a"}`, `ration_pool_idle{kind=~"a|b"}`} {
		want := there != `ration_pool_idle{kind=~"a|b"}`
		require.Equal(t, want, exported(metrics, there) == nil, there)
	}
	for _, missing := range []string{"ration_pool_idl", "ration_pool_idles", "ration_pool_held_seconds", "up",
		`ration_pool_idle{kind="b"}`, `ration_pool_idle{sort="a"}`, `ration_pool_idle{sort=~"$pool"}`} {
		require.Error(t, exported(metrics, missing), missing)
	}
}

var (
	metricName = regexp.MustCompile(`\bration_\w+`)
	selector   = regexp.MustCompile(`\b(ration_\w+)(?:{([^}]*)})?`)
	matcher    = regexp.MustCompile(`(\w+)(=~|=)"([^"]*)"`)
)

// exported returns an error if an expression asks for a metric, a label or a
// value of a label that metrics do not show, or for nothing.
func exported(metrics, expr string) error {
	series := slices.DeleteFunc(strings.Split(metrics, "\n"), func(line string) bool { return strings.HasPrefix(line, "#") })
	has := func(name, labels string) bool {
		return slices.ContainsFunc(series, func(line string) bool {
			return (strings.HasPrefix(line, name+"{") || strings.HasPrefix(line, name+" ")) && strings.Contains(line, labels)
		})
	}
	asked := selector.FindAllStringSubmatch(expr, -1)
	if len(asked) == 0 {
		return fmt.Errorf("no metric of ours in %q", expr)
	}
	for _, one := range asked {
		name := one[1]
		if !has(name, "") {
			return fmt.Errorf("no metric %s", name)
		}
		for _, m := range matcher.FindAllStringSubmatch(one[2], -1) {
			label, values := m[1], []string{m[3]}
			if m[2] == "=~" {
				values = strings.Split(m[3], "|")
			}
			for _, v := range values {
				want := fmt.Sprintf("%s=%q", label, v)
				if strings.HasPrefix(v, "$") { // any
					want = label + `="`
				}
				if !has(name, want) {
					return fmt.Errorf("no series %s{%s}", name, want)
				}
			}
		}
	}
	return nil
}

// promtool fails where it is missing: ./setup.sh installs it.
func promtool(args ...string) (string, error) {
	out, err := exec.Command("promtool", args...).CombinedOutput()
	return string(out), err
}
