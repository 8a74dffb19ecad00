package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"regexp"
)

const (
	steps   = 60      // a point is followed before it counts as inside
	largest = 100_000 // width and height
)

var filmName = regexp.MustCompile("^[a-z0-9-]{1,40}$") // part of the name of a file

// frame is a view of the Mandelbrot set, as it travels through the queue.
type frame struct {
	Film      string  `json:"film"`
	Number    int     `json:"number"`
	Width     int     `json:"width"`
	Height    int     `json:"height"`
	Real      float64 `json:"real"`
	Imaginary float64 `json:"imaginary"`
	Zoom      float64 `json:"zoom"`
}

// readFrame returns an error if no worker can ever render the frame.
func readFrame(payload []byte) (frame, error) {
	found := frame{Real: -0.7436, Imaginary: 0.1318, Zoom: 1}
	decoder := json.NewDecoder(bytes.NewReader(payload))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&found); err != nil {
		return found, err
	}
	if decoder.More() {
		return found, errors.New("more than one JSON value")
	}
	switch {
	case !filmName.MatchString(found.Film):
		return found, fmt.Errorf("film must match %s, got %q", filmName, found.Film)
	case found.Number < 0 || found.Zoom <= 0:
		return found, fmt.Errorf("number and zoom must be positive, got %d and %g", found.Number, found.Zoom)
	case min(found.Width, found.Height) < 1 || max(found.Width, found.Height) > largest:
		return found, fmt.Errorf("size must be 1 to %d, got %d x %d", largest, found.Width, found.Height)
	}
	return found, nil
}

func (f frame) name() string { return fmt.Sprintf("%s-%03d", f.Film, f.Number) }

// render returns a PNG; a frame with more pixels may fit on another machine.
func (f frame) render(pixels int) ([]byte, error) {
	if f.Width*f.Height > pixels {
		return nil, fmt.Errorf("%d x %d is more than %d pixels", f.Width, f.Height, pixels)
	}
	picture := image.NewGray(image.Rect(0, 0, f.Width, f.Height))
	scale := 3 / f.Zoom / float64(f.Width)
	for y := range f.Height {
		for x := range f.Width {
			point := complex(
				f.Real+(float64(x)-float64(f.Width)/2)*scale,
				f.Imaginary+(float64(y)-float64(f.Height)/2)*scale)
			picture.SetGray(x, y, color.Gray{Y: shade(point)})
		}
	}
	var body bytes.Buffer
	err := png.Encode(&body, picture)
	return body.Bytes(), err
}

func shade(point complex128) uint8 {
	z := complex128(0)
	for step := range steps {
		if real(z)*real(z)+imag(z)*imag(z) > 4 {
			return uint8(255 * step / steps)
		}
		z = z*z + point
	}
	return 0
}
