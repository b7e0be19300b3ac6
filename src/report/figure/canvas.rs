//! A sheet of paper: lines, marks and words at pixels.

use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// What words are set in: the first that a reader has. The first is in the package, for PNG.
const FONT: &str = "DejaVu Sans, Helvetica, Arial, sans-serif";

pub const INK: RGBColor = RGBColor(0x1b, 0x1f, 0x24);
pub const QUIET: RGBColor = RGBColor(0x59, 0x63, 0x6e);
pub const RULE: RGBColor = RGBColor(0xdd, 0xe1, 0xe6);

/// A place on the sheet, from its upper left corner.
pub type Place = (f64, f64);

/// Where words are beside their place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Right,
    Left,
    Centre,
}

/// How words look.
#[derive(Clone, Copy)]
pub struct Words {
    pub size: f64,
    pub is_bold: bool,
    pub colour: RGBColor,
    pub side: Side,
}

impl Words {
    pub const LABEL: Words = Words { size: 11.0, is_bold: false, colour: INK, side: Side::Right };
    pub const VALUE: Words = Words { is_bold: true, ..Words::LABEL };
    pub const TITLE: Words = Words { size: 16.0, is_bold: true, ..Words::LABEL };
    pub const PANEL: Words = Words { size: 12.0, is_bold: true, ..Words::LABEL };

    pub const fn on(self, side: Side) -> Words {
        Words { side, ..self }
    }

    pub const fn quiet(self) -> Words {
        Words { colour: QUIET, ..self }
    }

    /// About how many pixels this text is wide.
    pub fn width(self, text: &str) -> f64 {
        text.chars().count() as f64 * self.size * if self.is_bold { 0.66 } else { 0.58 }
    }
}

/// A drawing that becomes SVG.
pub struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
}

type Drawn = Result<(), String>;

impl<'a> Canvas<'a> {
    pub fn new(svg: &'a mut String, width: f64, height: f64) -> Result<Self, String> {
        let area = SVGBackend::with_string(svg, (width as u32, height as u32)).into_drawing_area();
        area.fill(&WHITE).map_err(|error| error.to_string())?;
        Ok(Canvas { area })
    }

    pub fn finish(self) -> Drawn {
        self.area.present().map_err(|error| error.to_string())
    }

    pub fn line(&self, places: &[Place], colour: RGBColor, width: f64) -> Drawn {
        self.stroke(places, colour.stroke_width(width.round() as u32))
    }

    /// Thin and light, for whiskers and bounds.
    pub fn whisker(&self, from: Place, to: Place, colour: RGBColor, width: u32) -> Drawn {
        self.stroke(&[from, to], colour.mix(0.5).stroke_width(width))
    }

    pub fn dashed(&self, places: &[Place], colour: RGBColor, dash: i32, width: u32) -> Drawn {
        let path = places.iter().map(|place| pixel(*place));
        let element = DashedPathElement::new(path, dash, dash / 2 + 2, colour.stroke_width(width));
        self.area.draw(&element).map_err(|error| error.to_string())
    }

    fn stroke(&self, places: &[Place], style: ShapeStyle) -> Drawn {
        let path: Vec<(i32, i32)> = places.iter().map(|place| pixel(*place)).collect();
        self.area.draw(&PathElement::new(path, style)).map_err(|error| error.to_string())
    }

    pub fn dot(&self, at: Place, radius: i32, colour: RGBColor) -> Drawn {
        let element = Circle::new(pixel(at), radius, colour.filled());
        self.area.draw(&element).map_err(|error| error.to_string())
    }

    pub fn ring(&self, at: Place, radius: i32, colour: RGBColor) -> Drawn {
        let element = Circle::new(pixel(at), radius, colour.stroke_width(1));
        self.area.draw(&element).map_err(|error| error.to_string())
    }

    pub fn triangle(&self, at: Place, is_up: bool, colour: RGBColor) -> Drawn {
        let (x, y) = at;
        let tip = if is_up { -7.0 } else { 7.0 };
        let corners = vec![pixel((x, y + tip)), pixel((x - 6.0, y - tip / 2.0)), pixel((x + 6.0, y - tip / 2.0))];
        self.area.draw(&Polygon::new(corners, colour.filled())).map_err(|error| error.to_string())
    }

    pub fn rectangle(&self, from: Place, to: Place, colour: RGBColor) -> Drawn {
        let element = Rectangle::new([pixel(from), pixel(to)], colour.filled());
        self.area.draw(&element).map_err(|error| error.to_string())
    }

    /// Words whose middle line is at the place.
    pub fn text(&self, text: &str, at: Place, words: Words) -> Drawn {
        let side = match words.side {
            Side::Right => HPos::Left,
            Side::Left => HPos::Right,
            Side::Centre => HPos::Center,
        };
        let style = if words.is_bold { FontStyle::Bold } else { FontStyle::Normal };
        let font = (FONT, words.size).into_font().style(style);
        let style = TextStyle::from(font).color(&words.colour).pos(Pos::new(side, VPos::Center));
        self.area.draw(&Text::new(text.to_owned(), pixel(at), style)).map_err(|error| error.to_string())
    }
}

fn pixel((x, y): Place) -> (i32, i32) {
    (x.round() as i32, y.round() as i32)
}

/// `#0072b2`; black where it is something else.
pub fn colour(hex: &str) -> RGBColor {
    let part = |range| hex.get(range).and_then(|digits| u8::from_str_radix(digits, 16).ok());
    match (part(1..3), part(3..5), part(5..7)) {
        (Some(red), Some(green), Some(blue)) => RGBColor(red, green, blue),
        _ => BLACK,
    }
}
