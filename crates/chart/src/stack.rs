//! Layers upon each other over time: what a total is made of.

use super::axis::{Axis, HORIZONTAL_ROOM, VERTICAL_ROOM};
use super::figure::{Panel, draw_head};
use super::svg::{Area, Svg};

/// A chart of stacked layers.
pub struct Stack {
    /// What it shows.
    pub title: String,
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// How long an interval is; a value is that of the whole interval and stands at its middle.
    pub step: f64,
    /// From the bottom up; all have equally many values.
    pub layers: Vec<Layer>,
}

/// One layer.
pub struct Layer {
    /// Its colour.
    pub colour: &'static str,
    /// How thick it is in each interval.
    pub values: Vec<f64>,
}

impl Panel for Stack {
    fn draw(&self, svg: &mut Svg, area: Area) {
        let area = draw_head(svg, area, &self.title, &[]);
        let area = area.within(VERTICAL_ROOM, 8.0, 14.0, HORIZONTAL_ROOM);
        let tops = self.tops();
        let ends = [0.0, self.step * tops.first().map_or(0, Vec::len) as f64];
        let x = self.x.fit(ends.into_iter());
        let y = self.y.fit(tops.last().into_iter().flatten().copied());
        y.draw_vertical(svg, area, &self.y.title);
        x.draw_horizontal(svg, area, &self.x.title);
        let mut below = vec![0.0; tops.first().map_or(0, Vec::len)];
        for (layer, top) in self.layers.iter().zip(tops) {
            // A layer that has nothing is not drawn, not even as a line.
            if layer.values.iter().any(|value| *value > 0.0) {
                let place = |values: &[f64]| -> Vec<(f64, f64)> {
                    let middle = |at: usize| x.x(area, (at as f64 + 0.5) * self.step);
                    let corner = |(at, value): (usize, &f64)| (middle(at), y.y(area, *value));
                    values.iter().enumerate().map(corner).collect()
                };
                let mut outline = place(&top);
                outline.extend(place(&below).into_iter().rev());
                svg.polygon(&outline, layer.colour);
            }
            below = top;
        }
    }
}

impl Stack {
    /// The upper edge of each layer.
    fn tops(&self) -> Vec<Vec<f64>> {
        let mut total: Vec<f64> = Vec::new();
        let add = |layer: &Layer| {
            total.resize(layer.values.len(), 0.0);
            total.iter_mut().zip(&layer.values).for_each(|(sum, value)| *sum += value);
            total.clone()
        };
        self.layers.iter().map(add).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_stand_on_each_other() {
        let layer = |values: [f64; 2]| Layer { colour: "#000000", values: values.into() };
        let stack = Stack {
            title: String::new(),
            x: Axis::from_zero("x"),
            y: Axis::from_zero("y"),
            step: 1.0,
            layers: vec![layer([1.0, 2.0]), layer([0.0, 0.0]), layer([3.0, 1.0])],
        };
        assert_eq!(stack.tops(), [[1.0, 2.0], [1.0, 2.0], [4.0, 3.0]]);
        let mut svg = Svg::new(300.0, 200.0);
        stack.draw(&mut svg, Area { left: 0.0, top: 0.0, width: 300.0, height: 200.0 });
        assert_eq!(svg.finish().matches("<polygon").count(), 2);
    }
}
