//! Plots: time over bytes, both logarithmic, as SVG.

use plotters::prelude::*;
use plotters::style::FontTransform;

use super::table::{size, time};
use crate::failure::{Failure, Result};

/// One curve.
pub(super) struct Curve {
    pub(super) name: String,
    /// Bytes and microseconds, as they were measured.
    pub(super) points: Vec<(f64, f64)>,
    /// What goes through them, if it isn't a line from one to the next.
    pub(super) fit: Vec<(f64, f64)>,
}

const WIDTH: u32 = 760;
const HEIGHT: u32 = 480;

/// Colours that people who see fewer of them tell apart (Okabe and Ito), by place.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 0, 0),
    RGBColor(213, 94, 0),
    RGBColor(230, 159, 0),
    RGBColor(0, 114, 178),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(120, 120, 120),
];

/// An SVG of the curves, with a legend. A place in the list always has the same colour, so that a curve
/// without points keeps the others'.
pub(super) fn curves(title: &str, curves: &[Curve]) -> Result<String> {
    let mut svg = String::new();
    draw(title, curves, &mut svg)
        .map_err(|error| Failure::new(format!("draw the plot `{title}`: {error}")))?;
    Ok(svg)
}

fn draw(title: &str, curves: &[Curve], svg: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let points = || curves.iter().flat_map(|it| it.points.iter().chain(&it.fit));
    let bounds = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, 0.0_f64), |(least, most), it| (least.min(it), most.max(it)))
    };
    let (x0, x1) = bounds(&mut points().map(|it| it.0));
    let (y0, y1) = bounds(&mut points().map(|it| it.1));
    if !(x0.is_finite() && y0.is_finite() && x0 > 0.0 && y0 > 0.0) {
        return Err("there is nothing to draw".into());
    }
    let area = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .set_label_area_size(LabelAreaPosition::Left, 62)
        .set_label_area_size(LabelAreaPosition::Bottom, 44)
        .build_cartesian_2d(
            (x0 / 1.3..x1 * 1.3).log_scale().base(8.0),
            (y0 / 1.5..y1 * 1.5).log_scale(),
        )?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_labels(12)
        .y_labels(10)
        .x_label_formatter(&|bytes| size(bytes.round() as usize))
        .y_label_formatter(&|micros| tick(*micros))
        .x_desc("bytes")
        .y_desc("µs")
        .axis_desc_style(("sans-serif", 14))
        .label_style(("sans-serif", 12))
        .draw()?;
    for (curve, colour) in curves.iter().zip(COLOURS.iter().cycle()) {
        if curve.points.is_empty() {
            continue;
        }
        let style = colour.stroke_width(2);
        let line = if curve.fit.is_empty() { &curve.points } else { &curve.fit };
        chart
            .draw_series(LineSeries::new(line.iter().copied(), style))?
            .label(&curve.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
        let dots = curve.points.iter().map(|point| Circle::new(*point, 3, colour.filled()));
        chart.draw_series(dots)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(200, 200, 200))
        .label_font(("sans-serif", 13).into_font().transform(FontTransform::None))
        .draw()?;
    area.present()?;
    Ok(())
}

fn tick(micros: f64) -> String {
    if micros < 1.0 {
        format!("{micros:.2}")
    } else {
        time(micros).trim_end_matches(".00").trim_end_matches(".0").to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plot_names_its_curves_and_axes_and_is_one_svg() {
        let curve = |name: &str, points: &[(f64, f64)]| Curve {
            name: name.into(),
            points: points.into(),
            fit: Vec::new(),
        };
        let all = [
            curve("the limit", &[(8192.0, 0.3), (65536.0, 3.0), (524288.0, 27.0)]),
            curve("aether", &[(16.0, 0.25), (8192.0, 0.6), (524288.0, 30.0)]),
            curve("nobody", &[]),
        ];
        let svg = curves("all_reduce between 2 ranks", &all).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for text in
            ["all_reduce between 2 ranks", "the limit", "aether", "bytes", "µs", "64 B", "4 KiB"]
        {
            assert!(svg.contains(text), "{text}");
        }
        assert!(!svg.contains("nobody"));
    }

    #[test]
    fn nothing_to_draw_is_an_error_that_names_the_plot() {
        let why = curves("all_to_all", &[]).unwrap_err().to_string();
        assert_eq!(why, "draw the plot `all_to_all`: there is nothing to draw");
    }
}
