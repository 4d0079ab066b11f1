//! Models by their linear profiles: those of the paper's tables 3 and 4, and single ones.

use std::sync::Arc;

use fermata_core::{Profile, Span};
use fermata_dispatch::ModelSpec;

/// A model whose batch of `b` takes `alpha b + beta`.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Its name in the paper.
    pub name: String,
    /// What one more request in a batch costs.
    pub alpha_ms: f64,
    /// What a batch costs, however small.
    pub beta_ms: f64,
    /// How long a request may take.
    pub slo_ms: f64,
}

impl Model {
    /// A model by its numbers.
    pub fn new(name: &str, alpha_ms: f64, beta_ms: f64, slo_ms: f64) -> Self {
        Self { name: name.to_owned(), alpha_ms, beta_ms, slo_ms }
    }

    /// ResNet50 as in table 2 (1080Ti), which the paper's experiments use most.
    pub fn resnet50(slo_ms: f64) -> Self {
        Self::new("ResNet50", 1.053, 5.072, slo_ms)
    }

    /// InceptionResNetV2 as in table 2.
    pub fn inception_resnet(slo_ms: f64) -> Self {
        Self::new("InceptionResNetV2", 5.090, 18.368, slo_ms)
    }

    /// The same under another SLO.
    pub fn with_slo(&self, slo_ms: f64) -> Self {
        Self { slo_ms, ..self.clone() }
    }

    /// How much it gains by batching.
    pub fn batching_effect(&self) -> f64 {
        self.beta_ms / self.alpha_ms
    }

    /// How long a batch takes, in milliseconds.
    pub fn latency_ms(&self, size: usize) -> f64 {
        self.alpha_ms * size as f64 + self.beta_ms
    }

    /// Its profile, up to the batch that takes the whole SLO.
    pub fn profile(&self) -> Profile {
        let ms = Span::from_ms;
        Profile::linear(ms(self.alpha_ms), ms(self.beta_ms), ms(self.slo_ms))
            .expect("a batch takes some time")
    }

    /// What dispatch is told of it.
    pub fn spec(&self) -> Arc<ModelSpec> {
        Arc::new(ModelSpec::uniform(Span::from_ms(self.slo_ms), self.profile()))
    }
}

/// The 35 models of table 3.
pub fn zoo_1080ti() -> Vec<Model> {
    parse(include_str!("../../../../../data/zoo_1080ti.csv"))
}

/// The 37 models of table 4.
pub fn zoo_a100() -> Vec<Model> {
    parse(include_str!("../../../../../data/zoo_a100.csv"))
}

/// One model of a zoo.
pub fn find(zoo: &[Model], name: &str) -> Model {
    zoo.iter().find(|model| model.name == name).expect("the zoo has this model").clone()
}

/// The files are part of the program: that they are well formed is tested, not checked at run time.
fn parse(text: &str) -> Vec<Model> {
    let model = |line: &str| {
        let mut fields = line.split(',');
        let name = fields.next().expect("a name");
        let mut number = || -> f64 {
            fields.next().and_then(|field| field.trim().parse().ok()).expect("a number")
        };
        Model::new(name, number(), number(), number())
    };
    text.lines().skip(1).map(model).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zoos_are_those_of_the_paper() {
        let (older, newer) = (zoo_1080ti(), zoo_a100());
        assert_eq!((older.len(), newer.len()), (35, 37));
        assert_eq!(find(&newer, "ResNet50"), Model::new("ResNet50", 0.268, 5.172, 20.0));
        for model in older.iter().chain(&newer) {
            // Appendix C: every model can run with a batch of at least four. SLOs are rounded to
            // whole milliseconds and at least 20 there.
            assert!(model.latency_ms(4) < model.slo_ms, "{model:?}");
        }
    }
}
