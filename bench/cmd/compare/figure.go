package main

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A figure is a picture: what it shows, a legend, some plots, and where the
// numbers are from.
type figure struct {
	name, title string
	legend      []entry
	plots       [][]*plot.Plot
	heights     []float64 // of the rows of plots, as parts of the whole
	height      vg.Length
	foot        string
}

// An entry is a line of a legend.
type entry struct {
	name string
	line draw.LineStyle
}

const (
	width  = 8.4 * vg.Inch
	margin = 9 * vg.Millimeter / 2
)

var (
	ink   = color.RGBA{0x22, 0x22, 0x22, 0xff}
	faint = color.RGBA{0x77, 0x77, 0x77, 0xff}
	grid  = color.RGBA{0xe4, 0xe4, 0xe4, 0xff}

	// Okabe and Ito's colours, which those tell apart who see few. Ours are blue.
	blue    = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	sky     = color.RGBA{0x56, 0xb4, 0xe9, 0xff}
	red     = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	green   = color.RGBA{0x00, 0x9e, 0x73, 0xff}
	pink    = color.RGBA{0xcc, 0x79, 0xa7, 0xff}
	orange  = color.RGBA{0xe6, 0x9f, 0x00, 0xff}
	implInk = map[string]color.RGBA{
		"nonfair": blue, "fair": sky, "xsync": red, "chan": green, "fifo": pink, "marusama": orange,
	}
)

func lineStyle(c color.Color, w vg.Length) draw.LineStyle { return draw.LineStyle{Color: c, Width: w} }

func implLine(impl string) draw.LineStyle {
	if impl == "nonfair" || impl == "fair" {
		return lineStyle(implInk[impl], 2)
	}
	return lineStyle(implInk[impl], 1.2)
}

func (f figure) save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	svg := vgsvg.New(width, f.height)
	f.draw(draw.New(svg))
	png := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, f.height), vgimg.UseDPI(132), vgimg.UseBackgroundColor(color.White))}
	f.draw(draw.New(png))
	for ext, canvas := range map[string]vg.CanvasWriterTo{"svg": svg, "png": png} {
		var b bytes.Buffer
		if _, err := canvas.WriteTo(&b); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, f.name+"."+ext), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func style(size vg.Length, c color.Color) text.Style {
	return text.Style{
		Color:   c,
		Font:    font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size),
		Handler: plot.DefaultTextHandler,
	}
}

func (f figure) draw(c draw.Canvas) {
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	c = draw.Crop(c, margin, -margin, margin, -margin)
	top := c.Max.Y - 13
	c.FillText(style(13, ink), vg.Point{X: c.Min.X, Y: top}, f.title)
	c.FillText(style(7.5, faint), c.Min, f.foot)
	top -= 20
	x := c.Min.X
	small := style(9, ink)
	for _, e := range f.legend {
		c.StrokeLine2(e.line, x, top+3, x+16, top+3)
		c.FillText(small, vg.Point{X: x + 21, Y: top}, e.name)
		x += 21 + small.Width(e.name) + 14
	}
	area := draw.Crop(c, 0, 0, 18, top-6-c.Max.Y)
	f.drawPlots(area)
}

// drawPlots draws the rows below each other, each as high as it should be. The
// plots of a column begin and end at the same place.
func (f figure) drawPlots(area draw.Canvas) {
	canvases := plot.Align(f.plots, draw.Tiles{Rows: len(f.plots), Cols: len(f.plots[0]), PadX: 14}, area)
	height := area.Max.Y - area.Min.Y
	top := area.Max.Y
	for i, row := range f.plots {
		part := 1 / float64(len(f.plots))
		if f.heights != nil {
			part = f.heights[i]
		}
		bottom := top - vg.Length(part)*height
		for j, p := range row {
			canvas := canvases[i][j]
			canvas.Min.Y, canvas.Max.Y = bottom, top-6
			p.Draw(canvas)
		}
		top = bottom
	}
}

func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle = withAlign(style(9.5, ink), p.Title.TextStyle)
	p.Title.Padding = 4
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Label.TextStyle = withAlign(style(8.5, faint), a.Label.TextStyle)
		a.Label.Padding = 3
		a.Tick.Label = withAlign(style(8, faint), a.Tick.Label)
		a.LineStyle = lineStyle(faint, 0.5)
		a.Tick.LineStyle = lineStyle(faint, 0.5)
		a.Padding = 0
	}
	lines := plotter.NewGrid()
	lines.Horizontal = lineStyle(grid, 0.6)
	lines.Vertical = lineStyle(grid, 0.6)
	p.Add(lines)
	return p
}

// withAlign is a style that is aligned, and turned, as another one is.
func withAlign(s, as text.Style) text.Style {
	s.XAlign, s.YAlign, s.Rotation = as.XAlign, as.YAlign, as.Rotation
	return s
}

// ticks labels the values that are given.
func ticks(label func(v float64) string, values ...float64) plot.ConstantTicks {
	var t plot.ConstantTicks
	for _, v := range values {
		t = append(t, plot.Tick{Value: v, Label: label(v)})
	}
	return t
}

// timeTicks are the powers of ten from 10 ns to 1 s that are in between.
func timeTicks(lo, hi float64) plot.ConstantTicks {
	var values []float64
	for v := 10.0; v <= 1e9; v *= 10 {
		if v >= lo && v <= hi {
			values = append(values, v)
		}
	}
	return ticks(nanoseconds, values...)
}

func nanoseconds(v float64) string {
	switch {
	case v >= 1e9:
		return fmt.Sprintf("%g s", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%g ms", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%g µs", v/1e3)
	default:
		return fmt.Sprintf("%g ns", v)
	}
}

func commaTicks(values ...float64) plot.ConstantTicks {
	return ticks(func(v float64) string { return commas(fmt.Sprint(v)) }, values...)
}

func addLine(p *plot.Plot, points plotter.XYs, s draw.LineStyle) {
	line, err := plotter.NewLine(points)
	if err != nil {
		panic(err) // points that are no numbers, or none
	}
	line.LineStyle = s
	p.Add(line)
}

func addSteps(p *plot.Plot, points plotter.XYs, s draw.LineStyle) {
	line, err := plotter.NewLine(points)
	if err != nil {
		panic(err)
	}
	line.LineStyle = s
	line.StepStyle = plotter.PostStep
	p.Add(line)
}

// addBox fills a rectangle.
func addBox(p *plot.Plot, x0, y0, x1, y1 float64, c color.Color) {
	box, err := plotter.NewPolygon(plotter.XYs{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}})
	if err != nil {
		panic(err)
	}
	box.Color = c
	box.LineStyle.Width = 0
	p.Add(box)
}

func addText(p *plot.Plot, x, y float64, s string, c color.Color, align text.XAlignment) {
	labels, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: x, Y: y}}, Labels: []string{s}})
	if err != nil {
		panic(err)
	}
	labels.TextStyle[0] = style(8, c)
	labels.TextStyle[0].XAlign = align
	labels.TextStyle[0].YAlign = text.YCenter
	p.Add(labels)
}
