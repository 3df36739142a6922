package debugtest

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

var screenshots = flag.String("screenshots", "", "directory to write pictures of the page to")

// TestScreenshots makes pictures for the documentation, if it is told where to.
// It always builds the scene and looks at it.
func TestScreenshots(t *testing.T) {
	html := scene(t)
	url := serveHTML(t, html)
	for _, picture := range []struct {
		name          string
		width, height int64
		dark          bool
	}{
		{"debug.png", 1180, 0, false},
		{"debug-dark.png", 1180, 0, true},
		{"debug-phone.png", 390, 0, false},
	} {
		tab := open(t, url, size(picture.width, 900), dark(picture.dark))
		tab.run(chromedp.Click(css("#pause")))
		tab.run(chromedp.Click(css("tr.suspect .by summary")))
		tab.run(chromedp.Evaluate[chromedp.Void]("scrollTo(0, 0)"))
		png, err := chromedp.Run(tab.ctx, chromedp.FullScreenshot(100))
		require.NoError(t, err)
		require.NotEmpty(t, png)
		require.Less(t, len(png), 200_000, "too large for the repository")
		if *screenshots != "" {
			require.NoError(t, os.WriteFile(filepath.Join(*screenshots, picture.name), png, 0o644))
		}
	}
}
