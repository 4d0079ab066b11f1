//! Servers that cut their GPUs by themselves.

use super::*;

/// How often cuts were tried by `all_equal`.
static ASKED: AtomicUsize = AtomicUsize::new(0);

fn all_equal(question: &Question) -> Vec<f64> {
    ASKED.fetch_add(1, SeqCst);
    vec![1.0; question.cuts.len()]
}

/// Every share serves as much as a whole GPU.
fn more_is_better(question: &Question) -> Vec<f64> {
    let goodput = |cut: &Candidate| {
        assert_eq!(
            (cut.specs.len(), cut.classes.len()),
            (question.rates.len(), cut.percents.len())
        );
        let profiles = cut.classes.iter().map(|&class| cut.specs[0].profile(class));
        profiles.map(|profile| profile.map_or(0.0, |_| 1.0)).sum()
    };
    assert!(question.rates.iter().all(|&rate| rate > 0.0));
    question.cuts.iter().map(goodput).collect()
}

async fn planned_bed(weigh: Weigh) -> Bed {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "net/1/model.onnx", "0.2 0.3");
    write(folder.path(), "net/fermata.toml", "slo_ms = 10000");
    let plan = SharePlan { epoch: Duration::from_secs(1), weigh };
    Bed::planned(folder, EmulatedSeat::gpu(0, 4), &[100], Some(plan)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gpu_is_cut_as_what_comes_in_needs_it_and_no_request_fails() {
    let bed = planned_bed(more_is_better).await;
    let gpu = bed.gpu().await;
    assert_eq!((percents(&gpu), &gpu["shares_by"]), (vec![100], &json!("plan")));
    let load = bed.load(4);
    let four = async || percents(&bed.gpu().await) == [25; 4];
    bed.until("four shares serve", four).await;
    assert_eq!(bed.gpu().await["shares_by"], "plan");
    bed.serves(&load, 20).await;
    // What is cut by hand is cut anew when there is a better way.
    let (status, recut) = bed.recut(&[100]).await;
    assert_eq!(status, 200, "{recut}");
    bed.until("four shares serve again", four).await;
    bed.serves(&load, 20).await;
    load.end().await;
    let (_, metrics) = ask(bed.metrics, "GET", "/metrics", "").await;
    assert!(metrics.contains("fermata_recuts_total 3"), "{metrics}");
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_by_hand_stays_while_no_other_is_better() {
    let bed = planned_bed(all_equal).await;
    let load = bed.load(4);
    let asked_again = async || {
        let before = ASKED.load(SeqCst);
        bed.until("cuts are tried", async || ASKED.load(SeqCst) > before + 1).await;
    };
    asked_again().await;
    assert_eq!(percents(&bed.gpu().await), [100]);
    let (status, recut) = bed.recut(&[70, 30]).await;
    assert_eq!(status, 200, "{recut}");
    asked_again().await;
    let gpu = bed.gpu().await;
    assert_eq!((percents(&gpu), &gpu["shares_by"]), (vec![70, 30], &json!("hand")));
    load.end().await;
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_is_too_slow_for_planned_shares_gets_a_whole_gpu_and_limits_the_next_cut() {
    let bed = planned_bed(more_is_better).await;
    let load = bed.load(4);
    bed.until("four shares serve", async || bed.gpu().await["shares"][3].is_object()).await;
    // 9 ms on a whole GPU, 17 ms on a half, 25 ms on a third.
    write(bed.folder.path(), "large/1/model.onnx", "8 1");
    write(bed.folder.path(), "large/fermata.toml", "slo_ms = 22");
    let (status, text) = ask(bed.http, "POST", "/v2/repository/models/large/load", "{}").await;
    assert_eq!(status, 200, "{text}");
    bed.until("two shares serve", async || percents(&bed.gpu().await) == [50, 50]).await;
    // One that is too slow for any share is refused, and changes nothing.
    write(bed.folder.path(), "huge/1/model.onnx", "15 1");
    write(bed.folder.path(), "huge/fermata.toml", "slo_ms = 10");
    let (status, text) = ask(bed.http, "POST", "/v2/repository/models/huge/load", "{}").await;
    assert_eq!((status, text.contains("is longer than slo_ms = 10")), (400, true), "{text}");
    assert_eq!(percents(&bed.gpu().await), [50, 50]);
    bed.serves(&load, 20).await;
    load.end().await;
    bed.stop().await;
}
